//! Clients of several ranks on the CPU plugin, which does not support them: each rank has its own client.

use crate::common;
use crate::common::{add, bytes, floats};
use grove_backend::{BackendName, DeviceSpec};
use grove_communicator::Communicator;
use grove_xla::{Argument, Buffer, Client, GlobalDevice, NamedValue, Platform, device_of_ranks, find_of_ranks};
use std::thread;

/// Runs `body` on two ranks.
fn on_ranks(body: impl Fn(&Communicator) + Sync) {
    thread::scope(|scope| {
        let body = &body;
        Communicator::threads(2).into_iter().for_each(|comm| drop(scope.spawn(move || body(&comm))));
    });
}

fn check(client: &Client) {
    assert_eq!((client.platform(), client.process_index()), ("cpu", Ok(0)));
    let device = |id| GlobalDevice { process: 0, id, addressable: true };
    assert_eq!(client.global_devices(), Ok(vec![device(0), device(1)]));
    let (device, array, program) = add(client);
    let x = Buffer::from_host(&device, &array, &bytes(&[1.0; 4])).unwrap();
    let sum = program.run(vec![Argument::Keep(&x), Argument::Keep(&x)]).unwrap();
    assert_eq!(floats(&sum[0]), [2.0; 4]);
}

#[test]
fn each_rank_has_a_client_of_its_own() {
    // `started` prints a note if there is no plugin.
    let Some((plugin, _)) = common::started(1) else { return };
    on_ranks(|comm| {
        let options = [("cpu_device_count".to_owned(), NamedValue::Int(2))];
        check(&Client::of_ranks(&plugin, Platform::Cpu, &options, comm).unwrap());
        // The CPU plugin ignores the options of other plugins.
        check(&Client::of_ranks(&plugin, Platform::Cuda, &options, comm).unwrap());
        check(&find_of_ranks(Platform::Cpu, &options, comm).unwrap().2);
        let device = device_of_ranks(DeviceSpec::new(BackendName::XlaCpu, 1), comm).unwrap();
        check(&device.client());
        comm.close().unwrap();
    });
}
