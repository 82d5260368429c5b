//! Types that may be shared between threads, checked at compile time.

use grove_xla::{Argument, Buffer, Client, Compiled, Device, Executable, Plugin, Topology, XlaError};

#[test]
fn handles_are_send_and_sync() {
    fn shared<T: Send + Sync>() {}
    shared::<Plugin>();
    shared::<Client>();
    shared::<Device>();
    shared::<Buffer>();
    shared::<Argument<'_>>();
    shared::<Executable>();
    shared::<Compiled>();
    shared::<Topology>();
    shared::<XlaError>();
}
