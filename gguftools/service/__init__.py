"""Our engine behind the HTTP interface of OpenAI, with a page to chat on. I/O."""
