"""The course itself: its map, running and storing its notebooks, its pages, its commands."""
