"""Recipes: pairs as files, and the same pair for the systems that others use."""

from gguftools.recipes.catalog import find_recipe, recipe_path, recipe_paths, user_folder
from gguftools.recipes.files import installed_file
from gguftools.recipes.reader import load_recipe
from gguftools.recipes.recipe import (
    Converted,
    Expected,
    HfModels,
    HubFile,
    Measured,
    Needs,
    PackageFile,
    PlacedFile,
    Recipe,
    RecipeSettings,
    Requantized,
    Source,
    predicted_recipe,
)
from gguftools.recipes.writer import recipe_toml, write_recipe

__all__ = [
    "Converted",
    "Expected",
    "HfModels",
    "HubFile",
    "Measured",
    "Needs",
    "PackageFile",
    "PlacedFile",
    "Recipe",
    "RecipeSettings",
    "Requantized",
    "Source",
    "find_recipe",
    "installed_file",
    "load_recipe",
    "predicted_recipe",
    "recipe_path",
    "recipe_paths",
    "recipe_toml",
    "user_folder",
    "write_recipe",
]
