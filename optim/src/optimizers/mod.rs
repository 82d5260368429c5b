//! Optimizers: chains under the names of the papers. Names, options and defaults are optax's.

mod adam;

pub use adam::{Adam, AdamChain, Adamw, AdamwChain, adam, adamw};
