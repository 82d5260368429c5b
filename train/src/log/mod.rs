//! What a person sees of a run, and what it leaves on the disk.
