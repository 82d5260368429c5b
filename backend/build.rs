//! Tells the crate if rustc shares its generic instantiations with other crates, as at the dev profile's level.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(shares_generics)");
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    if !["2", "3"].contains(&level.as_str()) {
        println!("cargo::rustc-cfg=shares_generics");
    }
}
