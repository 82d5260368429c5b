//! Data: what is trained on, in batches whose order is a function of a key and the epoch.
