//! Sets `cfg(shares_generics)` if rustc shares generic instantiations between crates, as at the dev profile's level.
//! grove-backend, grove-cuda-client and grove-cuda-kernels have the same script.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=OPT_LEVEL");
    println!("cargo::rustc-check-cfg=cfg(shares_generics)");
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    if !["2", "3"].contains(&level.as_str()) {
        println!("cargo::rustc-cfg=shares_generics");
    }
}
