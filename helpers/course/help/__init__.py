"""Help when something fails: what an error means, in a log or a notebook, and what is missing."""
