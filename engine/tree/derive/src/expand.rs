use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::{
    Data, DeriveInput, Error, Field, Fields, GenericParam, Generics, Ident, Result, Type, TypeParamBound, parse_quote,
    spanned::Spanned,
};

/// The role of a field, from its `#[tree(…)]` attribute.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Tree,
    Static,
    Buffer,
}

/// Expands to the `impl Tree` of a type.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let backend = backend_parameter(&input.generics)?;
    let (source, target): (Type, Ident) = match &backend {
        Some(ident) => (parse_quote!(#ident), format_ident!("__C")),
        None => (parse_quote!(__B), format_ident!("__C")),
    };
    let impl_generics = impl_generics(&input.generics, backend.as_ref(), &source);
    let (impl_generics, _, where_clause) = impl_generics.split_for_impl();
    let (_, ty_generics, _) = input.generics.split_for_impl();
    let on_arguments = on_arguments(&input.generics, backend.as_ref(), &source, &target);
    let options = type_options(input)?;
    let arm = |constructor: &TokenStream, name: &Ident, fields: &Fields| match options.transparent {
        true => transparent_arm(constructor, name, fields, &source),
        false => arm(constructor, name, fields, &source),
    };

    let arms = match &input.data {
        Data::Struct(data) => vec![arm(&quote!(#name), name, &data.fields)?],
        Data::Enum(data) => data
            .variants
            .iter()
            .map(|variant| {
                let ident = &variant.ident;
                arm(&quote!(#name::#ident), ident, &variant.fields)
            })
            .collect::<Result<_>>()?,
        Data::Union(_) => return Err(Error::new(name.span(), "a union cannot be a tree; use a struct or an enum")),
    };
    let visits = arms.iter().map(|arm| &arm.visit);
    let maps = arms.iter().map(|arm| &arm.map);
    let lifts = arms.iter().map(|arm| &arm.lift);
    let layers = arms.iter().map(|arm| &arm.layers);
    let this = options.layer.then(|| quote!(f(path, self);));

    let root = root();
    Ok(quote! {
        const _: () = {
        use #root as __tree;

        #[automatically_derived]
        #[allow(unused_variables)]
        impl #impl_generics __tree::Tree<#source> for #name #ty_generics #where_clause {
            type On<#target: __tree::Backend> = #name #on_arguments;

            fn visit(&self, path: &mut __tree::Path, visitor: &mut dyn __tree::Visitor<#source>) {
                match self { #(#visits)* }
            }

            fn map(
                self,
                path: &mut __tree::Path,
                f: &mut dyn FnMut(&__tree::Path, __tree::AnyArray<#source>) -> __tree::AnyArray<#source>,
            ) -> Self {
                match self { #(#maps)* }
            }

            fn lift<#target: __tree::Backend>(
                self,
                path: &mut __tree::Path,
                f: &mut dyn FnMut(&__tree::Path, __tree::AnyArray<#source>) -> __tree::AnyArray<#target>,
            ) -> Self::On<#target> {
                match self { #(#lifts)* }
            }

            fn visit_layers(
                &mut self,
                path: &mut __tree::Path,
                f: &mut dyn FnMut(&__tree::Path, &mut dyn ::std::any::Any),
            ) {
                #this
                match self { #(#layers)* }
            }
        }
        };
    })
}

/// Returns the path to `grove-tree` from the deriving crate: the crate itself, or `grove::tree`.
fn root() -> TokenStream {
    let name = |found, inside: TokenStream| match found {
        FoundCrate::Itself => quote!(::grove_tree),
        FoundCrate::Name(name) => {
            let ident = Ident::new(&name, Span::call_site());
            quote!(::#ident #inside)
        }
    };
    match (crate_name("grove-tree"), crate_name("grove-nn")) {
        (Ok(found), _) => name(found, TokenStream::new()),
        // The package's own name, where a Cargo.toml gives it no other; its library has a shorter one.
        (_, Ok(FoundCrate::Name(found))) if found == "grove_nn" => quote!(::grove::tree),
        (_, Ok(found)) => name(found, quote!(::tree)),
        // Build tools other than Cargo provide no manifest and name crates themselves.
        _ => quote!(::grove_tree),
    }
}

/// Finds the type parameter for the backend: bounded by a trait called `Backend`, or called `B`.
fn backend_parameter(generics: &Generics) -> Result<Option<Ident>> {
    let is_backend = |bound: &TypeParamBound| match bound {
        TypeParamBound::Trait(bound) => bound.path.segments.last().is_some_and(|last| last.ident == "Backend"),
        _ => false,
    };
    let found: Vec<&Ident> = generics
        .type_params()
        .filter(|parameter| parameter.ident == "B" || parameter.bounds.iter().any(is_backend))
        .map(|parameter| &parameter.ident)
        .collect();
    match found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        [_, second, ..] => Err(Error::new(second.span(), "a tree is on one backend: use one backend parameter")),
    }
}

/// Adds the bounds that the `impl` needs to the type's generics: every type parameter except the backend is a tree.
fn impl_generics(generics: &Generics, backend: Option<&Ident>, source: &Type) -> Generics {
    let mut generics = generics.clone();
    for parameter in generics.type_params_mut() {
        if Some(&parameter.ident) == backend {
            parameter.bounds.push(parse_quote!(__tree::Backend));
        } else {
            parameter.bounds.push(parse_quote!(__tree::Tree<#source>));
        }
    }
    if backend.is_none() {
        generics.params.push(parse_quote!(__B: __tree::Backend));
    }
    generics
}

/// Returns the type's generic arguments with the backend replaced: `<__C, T::On<__C>, N>`.
fn on_arguments(generics: &Generics, backend: Option<&Ident>, source: &Type, target: &Ident) -> TokenStream {
    if generics.params.is_empty() {
        return TokenStream::new();
    }
    let arguments = generics.params.iter().map(|parameter| match parameter {
        GenericParam::Type(ty) if Some(&ty.ident) == backend => quote!(#target),
        GenericParam::Type(ty) => {
            let ident = &ty.ident;
            quote!(<#ident as __tree::Tree<#source>>::On<#target>)
        }
        GenericParam::Lifetime(lifetime) => {
            let lifetime = &lifetime.lifetime;
            quote!(#lifetime)
        }
        GenericParam::Const(constant) => {
            let ident = &constant.ident;
            quote!(#ident)
        }
    });
    quote!(<#(#arguments),*>)
}

/// One arm of each of the four `match`es.
struct Arm {
    visit: TokenStream,
    map: TokenStream,
    lift: TokenStream,
    layers: TokenStream,
}

fn arm(constructor: &TokenStream, name: &Ident, fields: &Fields, source: &Type) -> Result<Arm> {
    let label = name.to_string();
    let node = match fields {
        Fields::Named(_) => quote!(__tree::Node::Struct(#label)),
        Fields::Unnamed(_) | Fields::Unit => quote!(__tree::Node::Tuple(#label)),
    };
    let (mut members, mut bindings) = (vec![], vec![]);
    let (mut visits, mut maps, mut lifts, mut layers) = (vec![], vec![], vec![], vec![]);
    for (i, field) in fields.iter().enumerate() {
        let member = match &field.ident {
            Some(ident) => quote!(#ident),
            None => {
                let index = syn::Index::from(i);
                quote!(#index)
            }
        };
        let binding = format_ident!("field_{}", i, span = Span::call_site());
        let segment = field.ident.as_ref().map_or_else(|| i.to_string(), unraw);
        let ty = &field.ty;
        let role = role(field)?;
        if role != Role::Static && is_tensor(ty) {
            return Err(Error::new_spanned(
                ty,
                "a field of a tree is an `Array`, not a `Tensor`: write `Array<B, D>`, make it by `Array::new(tensor)`, and \
                 read it by `.val()`",
            ));
        }
        let within = match role {
            Role::Tree => quote!(within),
            Role::Buffer => quote!(within_buffer),
            Role::Static => {
                visits.push(quote! {
                    path.within(#segment, |path| visitor.static_field(path, #binding));
                });
                maps.push(quote!(#member: #binding));
                lifts.push(quote!(#member: #binding));
                members.push(member);
                bindings.push(binding);
                continue;
            }
        };
        visits.push(quote! {
            path.#within(#segment, |path| <#ty as __tree::Tree<#source>>::visit(#binding, path, visitor));
        });
        maps.push(quote! {
            #member: path.#within(#segment, |path| <#ty as __tree::Tree<#source>>::map(#binding, path, f))
        });
        lifts.push(quote! {
            #member: path.#within(#segment, |path| <#ty as __tree::Tree<#source>>::lift(#binding, path, f))
        });
        layers.push(quote! {
            path.within(#segment, |path| <#ty as __tree::Tree<#source>>::visit_layers(#binding, path, f));
        });
        members.push(member);
        bindings.push(binding);
    }
    let pattern = quote!(#constructor { #(#members: #bindings),* });
    Ok(Arm {
        visit: quote! { #pattern => { visitor.enter(path, #node); #(#visits)* visitor.exit(path, #node); } },
        map: quote! { #pattern => #constructor { #(#maps),* }, },
        lift: quote! { #pattern => #constructor { #(#lifts),* }, },
        layers: quote! { #pattern => { #(#layers)* } },
    })
}

/// The arm of a `#[tree(transparent)]` type: walks the only field, without a node and a path segment of its own.
fn transparent_arm(constructor: &TokenStream, name: &Ident, fields: &Fields, source: &Type) -> Result<Arm> {
    let Some(field) = fields.iter().next().filter(|field| fields.len() == 1 && field.ident.is_none()) else {
        let message = "a transparent tree has one unnamed field, as in `Linear(Linear<B>)`";
        return Err(Error::new(name.span(), message));
    };
    if role(field)? != Role::Tree {
        return Err(Error::new_spanned(field, "the field of a transparent tree is neither static nor a buffer"));
    }
    let ty = &field.ty;
    Ok(Arm {
        visit: quote!(#constructor(tree) => <#ty as __tree::Tree<#source>>::visit(tree, path, visitor),),
        map: quote!(#constructor(tree) => #constructor(<#ty as __tree::Tree<#source>>::map(tree, path, f)),),
        lift: quote!(#constructor(tree) => #constructor(<#ty as __tree::Tree<#source>>::lift(tree, path, f)),),
        layers: quote!(#constructor(tree) => <#ty as __tree::Tree<#source>>::visit_layers(tree, path, f),),
    })
}

/// Options of a type, from its `#[tree(…)]` attributes.
#[derive(Default)]
struct TypeOptions {
    layer: bool,
    transparent: bool,
}

fn type_options(input: &DeriveInput) -> Result<TypeOptions> {
    let mut options = TypeOptions::default();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("tree")) {
        attribute.parse_nested_meta(|meta| {
            match meta.path.get_ident().map(Ident::to_string).as_deref() {
                Some("layer") => options.layer = true,
                Some("transparent") => options.transparent = true,
                _ => return Err(meta.error("write `#[tree(layer)]` or `#[tree(transparent)]` on a type")),
            }
            Ok(())
        })?;
    }
    Ok(options)
}

/// Returns true if a type is named `Tensor`.
fn is_tensor(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|segment| segment.ident == "Tensor"))
}

fn unraw(ident: &Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map_or(text.clone(), str::to_owned)
}

fn role(field: &Field) -> Result<Role> {
    let mut role = Role::Tree;
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("tree")) {
        attribute.parse_nested_meta(|meta| {
            let found = if meta.path.is_ident("buffer") {
                Role::Buffer
            } else if meta.path.get_ident().is_some_and(|ident| ident == "static") {
                Role::Static
            } else {
                return Err(meta.error("write `#[tree(static)]` or `#[tree(buffer)]`"));
            };
            if role != Role::Tree && role != found {
                return Err(Error::new(meta.path.span(), "a field is static or a buffer, not both"));
            }
            role = found;
            Ok(())
        })?;
    }
    Ok(role)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transparent_tree_has_one_field() {
        for fields in ["", "(A, B)", "{ a: A }", "(#[tree(static)] A)"] {
            let input = format!("#[tree(transparent)] enum Layer<B: Backend> {{ One{fields} }}");
            let input = syn::parse_str(&input).expect("an enum");
            assert!(expand(&input).expect_err("refused").to_string().contains("transparent tree"), "{fields}");
        }
    }

    #[test]
    fn a_tensor_field_leads_to_an_array() {
        for field in ["w: Tensor<B, 2>", "#[tree(buffer)] w: burn::tensor::Tensor<B, 1>"] {
            let input = syn::parse_str(&format!("struct Layer<B: Backend> {{ {field} }}")).expect("a struct");
            let error = expand(&input).expect_err("refused").to_string();
            assert!(error.contains("write `Array<B, D>`"), "{error}");
        }
    }
}
