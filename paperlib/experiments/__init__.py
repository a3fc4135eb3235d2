"""Which runs make which table: recipes, run store, grid, notebook runner."""
