//! The limit of custom calls per process, tested in a separate process. On the CPU plugin, like `cpu.rs`.

mod common;

use common::started;
use grove_xla::Platform;

#[test]
fn refuses_functions_beyond_the_limit() {
    let Some((plugin, _)) = started(1) else { return };
    let register = |name: &str| plugin.register_ffi(name, Platform::Cpu, |_, _| Ok(()));
    register("limit_0").unwrap();
    // A rejected function takes no slot.
    register("limit_0").unwrap_err();
    for index in 1..32 {
        register(&format!("limit_{index}")).unwrap();
    }
    let error = register("limit_32").unwrap_err().to_string();
    assert!(error.ends_with("a process can register at most 32 functions"), "{error}");
}
