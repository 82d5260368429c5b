//! The derive macro `#[derive(Tree)]` of `grove-tree`.
#![warn(missing_docs)]

mod expand;

use proc_macro::TokenStream;

/// Implements `Tree` for a struct or an enum. Walks visit the fields in order.
///
/// The backend is the type parameter with the bound `Backend`, or the one named `B`. A type without such a parameter is
/// a tree on every backend. Other type parameters must be trees.
///
/// - A field is a tree (an array, a derived struct, or a `Vec`, `Option`, `Box`, array, tuple or string-keyed map of
///   trees), a number, a string or a boolean.
/// - `#[tree(static)]` marks a field of any other type. Static fields have no leaves, and their type must not depend on
///   the backend.
/// - `#[tree(buffer)]` marks a field whose leaves are state rather than parameters, such as running statistics.
/// - `#[tree(transparent)]` on a type whose struct or variants have one unnamed field: the leaves have the paths that the
///   field's own leaves have, without a segment for the field.
/// - `#[tree(layer)]` on the type makes `layers_mut` find it. Such a type must not borrow.
#[proc_macro_derive(Tree, attributes(tree))]
pub fn derive_tree(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
