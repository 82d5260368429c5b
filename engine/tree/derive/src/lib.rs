//! `#[derive(Tree)]` of `grove-tree`.
#![warn(missing_docs)]

mod expand;

use proc_macro::TokenStream;

/// Makes a struct or an enum a tree: its fields are walked in order.
///
/// The backend is the type parameter with the bound `Backend`, or the one named `B`; a type without one is a tree
/// on every backend. Other type parameters must be trees.
///
/// - A field is a tree (an array, a derived struct, `Vec`, `Option`, `Box`, an array, a tuple or a string map of
///   trees), or a number, a string or a truth value.
/// - `#[tree(static)]` marks a field of another type, which has no leaves and must not depend on the backend.
/// - `#[tree(buffer)]` marks a field whose leaves are state rather than parameters.
/// - `#[tree(layer)]` on the type makes `layers_mut` find it. It must not borrow.
#[proc_macro_derive(Tree, attributes(tree))]
pub fn derive_tree(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
