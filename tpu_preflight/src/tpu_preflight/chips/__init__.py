"""Which TPUs there are: facts of each kind, slices, and how a tensor lies in their memory."""
