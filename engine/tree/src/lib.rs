//! Trees of arrays, and random keys.
//!
//! A model, an optimizer state, a batch or a cache is a plain struct whose leaves are [`Array`]s. `#[derive(Tree)]`
//! makes the struct a [`Tree`] (a pytree in JAX), and everything else is a function of trees: [`map`], [`partition`],
//! [`count_params`], [`summary`]. Trees are immutable: a function takes a tree and returns a tree. Randomness comes
//! from an explicit [`Key`], with the numbers of `jax.random`.
//!
//! ```
//! use grove_tree::{Array, Tree, count_params};
//! use grove_backend::Backend;
//!
//! #[derive(Tree, Clone, Debug)]
//! struct Linear<B: Backend> {
//!     weight: Array<B, 2>,
//!     bias: Option<Array<B, 1>>,
//! }
//!
//! let linear = Linear::<burn_flex::Flex> { weight: Array::absent([3, 4]), bias: Some(Array::absent([3])) };
//! assert_eq!(grove_tree::display(&linear), "Linear { weight: f32[3,4], bias: f32[3] }");
//! assert_eq!(count_params(&linear), 15);
//! ```
#![warn(missing_docs)]

extern crate self as grove_tree;

mod any;
mod array;
mod compare;
mod dtype;
mod error;
mod filter;
mod flat;
mod init;
pub mod key;
mod layers;
mod map;
mod named;
mod node;
mod partition;
mod path;
mod pattern;
mod print;
mod similar;
mod static_value;
mod structure;
mod summary;
mod tree;

pub use any::AnyArray;
pub use array::{Array, Kind};
pub use compare::{all_close, eq};
pub use error::TreeError;
pub use filter::{Filter, by_path, everything, is_buffer, is_inexact, is_param, path_fits};
pub use flat::FlatTree;
pub use grove_tree_derive::Tree;
pub use init::Init;
pub use key::{Key, KeyRng, Keys};
pub use layers::layers_mut;
pub use map::{
    at, cast, device_of, leaves, map, map_together, map_with_path, paths, skeleton, to_backend, to_device,
    try_map_with_path, zip_map,
};
pub use named::{NamedLeaves, named_leaves, with_named_leaves};
pub use partition::{combine, filter, partition};
pub use path::{Path, leaf_name};
pub use print::display;
pub use similar::similar;
pub use static_value::StaticValue;
pub use structure::{Structure, structure};
pub use summary::{count_bytes, count_params, format_bytes, summary};
pub use tree::{Node, Tree, Visitor};

#[doc(no_inline)]
pub use grove_backend::{AnyTensor, Backend};
