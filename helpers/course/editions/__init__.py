"""The course in its other forms: pages of a run, a site, slides, and other languages."""
