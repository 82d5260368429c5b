//! The limit of custom calls in a process, in a process of its own. On the CPU plugin, as `cpu.rs`.

mod common;

use common::started;
use grove_xla::Platform;

#[test]
fn refuses_more_functions_than_there_is_room_for() {
    let Some((plugin, _)) = started(1) else { return };
    let register = |name: &str| plugin.register_ffi(name, Platform::Cpu, |_, _| Ok(()));
    register("limit_0").unwrap();
    // One that is refused takes no room.
    register("limit_0").unwrap_err();
    for index in 1..32 {
        register(&format!("limit_{index}")).unwrap();
    }
    let error = register("limit_32").unwrap_err().to_string();
    assert!(error.ends_with("32 are registered, and no more can be"), "{error}");
}
