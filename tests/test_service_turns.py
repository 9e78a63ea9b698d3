"""Whose turn it is, and how pieces pass from the engine's thread to the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from gguftools.service.api_error import ApiError
from gguftools.service.handover import Handover
from gguftools.service.turns import Turns


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))


async def waiting(turns: Turns, clients: Sequence[str], served: list[str]) -> list[Any]:
    """A task for each client, waiting in this order behind the turn that is being had."""

    async def one(client: str) -> None:
        await turns.take(client)
        served.append(client)
        turns.give_back()

    tasks = [asyncio.create_task(one(client)) for client in clients]
    await asyncio.sleep(0)
    return tasks


def test_clients_take_turns_however_much_one_of_them_asks() -> None:
    async def work() -> None:
        turns = Turns(20)
        served: list[str] = []
        await turns.take("first")
        tasks = await waiting(turns, "aaaabbc", served)
        assert turns.n_waiting == 7
        turns.give_back()
        await asyncio.gather(*tasks)
        assert "".join(served) == "abcabaa"
        assert turns.n_waiting == 0

    run(work())


def test_one_at_a_time_has_the_turn() -> None:
    async def work() -> None:
        turns, n_inside = Turns(100), 0

        async def one(client: str) -> None:
            nonlocal n_inside
            await turns.take(client)
            n_inside += 1
            await asyncio.sleep(0)
            assert n_inside == 1
            n_inside -= 1
            turns.give_back()

        await asyncio.gather(*(one(client) for client in "abcabcaabb"))

    run(work())


def test_a_client_that_leaves_is_passed_over() -> None:
    async def work() -> None:
        turns = Turns(20)
        served: list[str] = []
        await turns.take("first")
        tasks = await waiting(turns, "abcd", served)
        tasks[1].cancel()
        await asyncio.sleep(0)
        assert turns.n_waiting == 3
        tasks[2].cancel()
        turns.give_back()  # while the third has been cancelled but has not heard of it
        await asyncio.gather(*tasks, return_exceptions=True)
        assert served == ["a", "d"]

    run(work())


def test_a_turn_given_to_a_client_that_just_left_goes_on() -> None:
    async def work() -> None:
        turns = Turns(20)
        served: list[str] = []
        await turns.take("first")
        tasks = await waiting(turns, "ab", served)
        turns.give_back()
        tasks[0].cancel()  # after it was given the turn
        await asyncio.gather(*tasks, return_exceptions=True)
        assert served == ["b"]
        await turns.take("free again")

    run(work())


def test_a_full_queue_says_when_to_come_again() -> None:
    async def work() -> None:
        turns = Turns(2)
        served: list[str] = []
        await turns.take("first")
        tasks = await waiting(turns, "ab", served)
        with pytest.raises(ApiError) as caught:
            await turns.take("c")
        assert (caught.value.status, caught.value.code) == (503, "queue_full")
        assert 1 <= int(caught.value.headers["Retry-After"]) <= 60
        turns.give_back()
        await asyncio.gather(*tasks)
        assert served == ["a", "b"]

    run(work())


def test_in_a_full_queue_the_greediest_client_gives_way() -> None:
    async def work() -> None:
        turns = Turns(3)
        served: list[str] = []
        await turns.take("first")
        greedy = await waiting(turns, "aaa", served)
        other = await waiting(turns, "b", served)
        with pytest.raises(ApiError, match="waiting"):
            await greedy[2]
        with pytest.raises(ApiError):
            await turns.take("a")  # it has as much as any
        turns.give_back()
        await asyncio.gather(*greedy[:2], *other)
        assert served == ["a", "b", "a"]

    run(work())


def test_closed_turns_refuse_who_waits_and_who_comes() -> None:
    async def work() -> None:
        turns = Turns(3)
        served: list[str] = []
        await turns.take("first")
        tasks = await waiting(turns, "ab", served)
        turns.close()
        for task in tasks:
            with pytest.raises(ApiError, match="stopping"):
                await task
        with pytest.raises(ApiError, match="stopping"):
            await turns.take("c")
        turns.give_back()
        assert served == []

    run(work())


# -- from the thread to the loop


def test_everything_arrives_in_order_through_a_narrow_handover() -> None:
    async def work() -> None:
        out: Handover[int] = Handover(3, 20)
        largest = 0

        def speak() -> None:
            for i in range(500):
                assert out.put(i)
            out.close()

        thread = threading.Thread(target=speak)
        thread.start()
        heard: list[int] = []
        while part := await out.take():
            largest = max(largest, len(part))
            heard += part
        thread.join()
        assert heard == list(range(500))
        assert largest <= 3
        assert await out.take() == []

    run(work())


def test_a_reader_that_never_reads_is_given_up() -> None:
    async def work() -> None:
        out: Handover[int] = Handover(2, 0.05)
        assert out.put(1)
        assert out.put(2)
        assert not await asyncio.to_thread(out.put, 3)
        assert out.late
        assert await out.take() == [1, 2]
        assert await out.take() == []

    run(work())


def test_a_writer_that_waits_for_room_hears_at_once_that_nobody_listens() -> None:
    async def work() -> None:
        out: Handover[int] = Handover(1, 20)
        assert out.put(1)
        started = time.monotonic()
        waits = asyncio.create_task(asyncio.to_thread(out.put, 2))
        await asyncio.sleep(0.05)
        out.close()
        assert not await waits
        assert not out.late
        assert time.monotonic() - started < 10

    run(work())
