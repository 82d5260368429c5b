//! A fake plugin in Rust whose client spans several processes, created as in XLA's CUDA source: each process puts its devices
//! under a key; the first process gets them all and puts the whole, which the others get.

use grove_communicator::Communicator;
use std::{
    mem::MaybeUninit,
    sync::{Arc, OnceLock},
    thread,
    time::Instant,
};

use super::*;
use crate::{
    Client, GlobalDevice, NamedValue, Platform, Plugin, XlaError,
    plugin::named_values,
    sys::{Api, ApiVersion, Args},
};

/// Number of devices of each process.
const DEVICES: usize = 2;

/// Number of table entries, more than the tests use.
const ENTRIES: usize = 128;

type Function = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

#[repr(C)]
struct Table {
    head: Api,
    functions: [Option<Function>; ENTRIES],
}

struct FakeError(u32, String);

struct FakeDevice {
    id: i32,
    process: i32,
}

struct FakeClient {
    node: i32,
    create: sys::ClientCreate,
    devices: Vec<*mut c_void>,
    own: Vec<*mut c_void>,
}

/// The function table of the plugin. Its head is read through a pointer that is never written.
struct Shared(*const Table);
// SAFETY: the table never changes.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`.
unsafe impl Sync for Shared {}

fn plugin() -> Arc<Plugin> {
    static TABLE: OnceLock<Shared> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut functions = [None; ENTRIES];
        fn set<A: Args>(functions: &mut [Option<Function>], function: unsafe extern "C" fn(*mut A) -> *mut c_void) {
            // SAFETY: all are function pointers that take one pointer; only the type of the pointed-to struct differs.
            functions[A::INDEX] =
                Some(unsafe { std::mem::transmute::<unsafe extern "C" fn(*mut A) -> *mut c_void, Function>(function) });
        }
        set(&mut functions, create);
        set(&mut functions, destroy);
        set(&mut functions, platform);
        set(&mut functions, process_index);
        set(&mut functions, all_devices);
        set(&mut functions, own_devices);
        set(&mut functions, description);
        set(&mut functions, device_id);
        set(&mut functions, device_process);
        set(&mut functions, error_code_of);
        set(&mut functions, error_message);
        set(&mut functions, error_destroy);
        let version = ApiVersion { major_version: 0, minor_version: 81, ..crate::plugin::args() };
        let head = Api { struct_size: size_of::<Table>(), extension_start: ptr::null_mut(), version };
        Shared(Box::leak(Box::new(Table { head, functions })))
    });
    // SAFETY: the table is never freed, and its functions follow its head.
    unsafe { Plugin::of_table(table.0.cast()) }
}

/// The callbacks, called as a plugin calls them.
struct Store(sys::ClientCreate);

// SAFETY: the callbacks may be called from any thread.
unsafe impl Sync for Store {}

unsafe extern "C" fn make_error(code: u32, message: *const c_char, size: usize) -> *mut c_void {
    // SAFETY: the message has this many bytes.
    let message = unsafe { crate::plugin::text(message, size) };
    Box::into_raw(Box::new(FakeError(code, message))).cast()
}

/// Returns a struct with arbitrary bytes, as C++ leaves it.
fn uninitialized<T: sys::Struct>() -> T {
    let mut args = MaybeUninit::<T>::uninit();
    // SAFETY: any bytes are valid for these structs.
    unsafe {
        args.as_mut_ptr().cast::<u8>().write_bytes(0xa5, size_of::<T>());
        args.assume_init()
    }
}

/// Takes ownership of an error.
///
/// # Safety
/// The error must be null, or come from `make_error`.
unsafe fn take_error(error: *mut c_void) -> Result<(), Failure> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: guaranteed by the caller.
    let FakeError(code, message) = *unsafe { Box::from_raw(error.cast::<FakeError>()) };
    Err((code, message))
}

/// Copies a value and frees it with its deleter.
///
/// # Safety
/// All three arguments must come from a callback.
unsafe fn value(value: *mut c_char, size: usize, delete: *mut c_void) -> Vec<u8> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let copy = slice(value.cast::<u8>(), size).to_vec();
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_char)>(delete)(value);
        copy
    }
}

impl Store {
    fn get(&self, key: &[u8], timeout_in_ms: i32) -> Result<Vec<u8>, Failure> {
        type Callback = unsafe extern "C" fn(*mut sys::KeyValueGetCallback) -> *mut c_void;
        let make_error: MakeError = make_error;
        let mut args = sys::KeyValueGetCallback {
            key: key.as_ptr().cast(),
            key_size: key.len(),
            timeout_in_ms,
            callback_error: (&raw const make_error).cast_mut().cast(),
            user_arg: self.0.kv_get_user_arg,
            ..uninitialized()
        };
        // SAFETY: the callback has this type.
        unsafe {
            take_error(std::mem::transmute::<*mut c_void, Callback>(self.0.kv_get_callback)(&mut args))?;
            Ok(value(args.value, args.value_size, args.value_deleter_callback))
        }
    }

    fn try_get(&self, key: &[u8]) -> Result<Vec<u8>, Failure> {
        type Callback = unsafe extern "C" fn(*mut sys::KeyValueTryGetCallback) -> *mut c_void;
        let make_error: MakeError = make_error;
        let mut args = sys::KeyValueTryGetCallback {
            key: key.as_ptr().cast(),
            key_size: key.len(),
            callback_error: (&raw const make_error).cast_mut().cast(),
            user_arg: self.0.kv_try_get_user_arg,
            ..uninitialized()
        };
        // SAFETY: the callback has this type.
        unsafe {
            take_error(std::mem::transmute::<*mut c_void, Callback>(self.0.kv_try_get_callback)(&mut args))?;
            Ok(value(args.value, args.value_size, args.value_deleter_callback))
        }
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        type Callback = unsafe extern "C" fn(*mut sys::KeyValuePutCallback) -> *mut c_void;
        let make_error: MakeError = make_error;
        let mut args = sys::KeyValuePutCallback {
            key: key.as_ptr().cast(),
            key_size: key.len(),
            value: value.as_ptr().cast(),
            value_size: value.len(),
            callback_error: (&raw const make_error).cast_mut().cast(),
            user_arg: self.0.kv_put_user_arg,
            ..uninitialized()
        };
        // SAFETY: the callback has this type.
        unsafe { take_error(std::mem::transmute::<*mut c_void, Callback>(self.0.kv_put_callback)(&mut args)) }
    }
}

/// Returns the process indices of all devices, by XLA's exchange of topologies.
fn exchange(store: &Store, node: i64, nodes: i64, timeout: i32) -> Result<Vec<u8>, Failure> {
    let key = |node: i64| format!("local_topology/fake/{node}").into_bytes();
    store.put(&key(node), &[node as u8; DEVICES])?;
    if node > 0 {
        return store.get(b"global_topology/fake", timeout);
    }
    let locals = thread::scope(|scope| {
        let threads: Vec<_> = (0..nodes).map(|i| scope.spawn(move || store.get(&key(i), timeout))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Result<Vec<_>, _>>()
    })?;
    store.put(b"global_topology/fake", &locals.concat())?;
    Ok(locals.concat())
}

unsafe extern "C" fn create(args: *mut sys::ClientCreate) -> *mut c_void {
    // SAFETY: the arguments are valid for the call.
    let (args, options) = unsafe { (&mut *args, named_values((*args).create_options, (*args).num_options)) };
    let option = |name: &str, default: i64| match options.iter().find(|(given, _)| given == name) {
        Some((_, NamedValue::Int(value))) => *value,
        _ => default,
    };
    let (node, nodes, timeout) = (option("node_id", 0), option("num_nodes", 1), option("timeout", 30_000) as i32);
    let processes = match nodes {
        1 => Ok(vec![0; DEVICES]),
        _ => exchange(&Store(*args), node, nodes, timeout),
    };
    let processes = match processes {
        Ok(processes) => processes,
        Err((code, message)) => return Box::into_raw(Box::new(FakeError(code, message))).cast(),
    };
    let device = |(id, process): (usize, &u8)| FakeDevice { id: id as i32, process: i32::from(*process) };
    let devices: Vec<FakeDevice> = processes.iter().enumerate().map(device).collect();
    let raw =
        |device: FakeDevice| (i64::from(device.process) == node, Box::into_raw(Box::new(device)).cast::<c_void>());
    // In another order than the order of the processes.
    let devices: Vec<_> = devices.into_iter().rev().map(raw).collect();
    let own = devices.iter().filter(|(own, _)| *own).map(|(_, device)| *device).collect();
    let devices = devices.into_iter().map(|(_, device)| device).collect();
    let client = FakeClient { node: node as i32, create: *args, devices, own };
    args.client = Box::into_raw(Box::new(client)).cast();
    ptr::null_mut()
}

/// Returns the client of the fake plugin.
///
/// # Safety
/// The client must be alive.
unsafe fn client<'a>(raw: *mut c_void) -> &'a FakeClient {
    // SAFETY: guaranteed by the caller.
    unsafe { &*raw.cast() }
}

/// Defines functions of the table, which write their results into their arguments.
macro_rules! functions {
    ($($name:ident($args:ident: $kind:ty) $body:block)*) => {
        $(unsafe extern "C" fn $name(args: *mut $kind) -> *mut c_void {
            // SAFETY: the arguments, and the plugin's own objects in them, are valid during the call.
            let $args = unsafe { &mut *args };
            #[allow(unused_unsafe)]
            // SAFETY: as for `Send`.
            unsafe { $body }
            ptr::null_mut()
        })*
    };
}
functions! {
    destroy(args: sys::ClientDestroy) {
        let client = Box::from_raw(args.client.cast::<FakeClient>());
        // The store exists until the client is destroyed.
        if !client.create.kv_try_get_callback.is_null() {
            assert_eq!(Store(client.create).try_get(b"none").unwrap_err().0, codes::NOT_FOUND);
        }
        client.devices.iter().for_each(|device| drop(Box::from_raw(device.cast::<FakeDevice>())));
    }
    platform(args: sys::ClientPlatformName) {
        (args.platform_name, args.platform_name_size) = (c"fake".as_ptr(), 4);
    }
    process_index(args: sys::ClientProcessIndex) { args.process_index = client(args.client).node; }
    all_devices(args: sys::ClientDevices) {
        let devices = &client(args.client).devices;
        (args.devices, args.num_devices) = (devices.as_ptr(), devices.len());
    }
    own_devices(args: sys::ClientAddressableDevices) {
        let devices = &client(args.client).own;
        (args.addressable_devices, args.num_addressable_devices) = (devices.as_ptr(), devices.len());
    }
    description(args: sys::DeviceGetDescription) { args.device_description = args.device; }
    device_id(args: sys::DeviceDescriptionId) { args.id = (*args.device_description.cast::<FakeDevice>()).id; }
    device_process(args: sys::DeviceDescriptionProcessIndex) {
        args.process_index = (*args.device_description.cast::<FakeDevice>()).process;
    }
    error_code_of(args: sys::ErrorGetCode) { args.code = (*args.error.cast::<FakeError>()).0; }
    error_message(args: sys::ErrorMessage) {
        let message = &(*args.error.cast::<FakeError>()).1;
        (args.message, args.message_size) = (message.as_ptr().cast(), message.len());
    }
    error_destroy(args: sys::ErrorDestroy) { drop(Box::from_raw(args.error.cast::<FakeError>())); }
}

/// Runs `body` on each rank and returns all results.
fn on_ranks<T: Send>(size: usize, body: impl Fn(&Communicator) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let body = &body;
        let ranks = Communicator::threads(size).into_iter();
        let threads: Vec<_> = ranks.map(|comm| scope.spawn(move || body(&comm))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn processes_of_a_client_find_each_other() {
    for size in [1, 2, 3] {
        on_ranks(size, |comm| {
            let given = [("node_id".to_owned(), NamedValue::Int(7))];
            // Twice, because each client has its own store.
            for _ in 0..2 {
                let options = if size > 1 { &given[..] } else { &[] };
                let client = Client::of_ranks(&plugin(), Platform::Cuda, options, comm).unwrap();
                assert_eq!(client.process_index(), Ok(comm.rank()));
                let expected: Vec<GlobalDevice> = (0..size * DEVICES)
                    .map(|id| (id, id / DEVICES))
                    .map(|(id, process)| GlobalDevice { process, id: id as i32, addressable: process == comm.rank() })
                    .collect();
                assert_eq!(client.global_devices(), Ok(expected));
                assert_eq!(client.devices().len(), DEVICES);
                comm.barrier("of the test").unwrap();
            }
        });
    }
}

#[test]
fn platforms_get_what_jax_gives_them() {
    let plugin = plugin();
    on_ranks(2, |comm| {
        let created = |platform| {
            let client = Client::of_ranks(&plugin, platform, &[], comm).unwrap();
            // SAFETY: the client is alive.
            let created = unsafe { super::tests::client(client.inner.client) }.create;
            (!created.kv_get_callback.is_null(), !created.kv_put_callback.is_null(), created.num_options)
        };
        assert_eq!(created(Platform::Cuda), (true, true, 2));
        assert_eq!(created(Platform::Tpu), (true, true, 0));
        assert_eq!(created(Platform::Cpu), (false, false, 0));
    });
}

#[test]
fn a_rank_that_is_missing_is_an_error_of_the_others() {
    let found = on_ranks(2, |comm| {
        let timeout = [("timeout".to_owned(), NamedValue::Int(300))];
        let client = (comm.rank() == 0).then(|| Client::of_ranks(&plugin(), Platform::Cuda, &timeout, comm).map(drop));
        comm.barrier("of the test").unwrap();
        client
    });
    let error = found.into_iter().flatten().next().unwrap().unwrap_err();
    let message = "no rank stored the key 'local_topology/fake/1' within 0.3 s".to_owned();
    assert_eq!(error, XlaError::Plugin { function: "PJRT_Client_Create", code: codes::DEADLINE_EXCEEDED, message });
    let found = on_ranks(2, |comm| {
        (comm.rank() == 0).then(|| Client::of_ranks(&plugin(), Platform::Cuda, &[], comm).map(drop))
    });
    let error = found.into_iter().flatten().next().unwrap().unwrap_err();
    let XlaError::Plugin { code: codes::UNAVAILABLE, message, .. } = &error else { panic!("{error:?}") };
    assert!(message.contains("rank 1") && message.contains("local_topology/fake/1"), "{message}");
}

#[test]
fn callbacks_get_wait_and_refuse() {
    on_ranks(2, |comm| {
        let own = Box::new(comm.key_value_store());
        let store = Store(with_store(crate::plugin::args(), &own));
        if comm.rank() == 0 {
            // Several threads ask for the key before it is put.
            thread::scope(|scope| {
                let getters: Vec<_> = (0..3).map(|_| scope.spawn(|| store.get(b"late", 30_000))).collect();
                getters.into_iter().for_each(|getter| assert_eq!(getter.join().unwrap(), Ok(vec![0, 1, 0xff])));
            });
            assert_eq!(store.get(b"large", -1), Ok(vec![7; 100_003]));
            assert_eq!(store.get(b"empty", 0), Ok(vec![]));
            assert_eq!(store.try_get(b"late"), Ok(vec![0, 1, 0xff]));
        } else {
            thread::sleep(Duration::from_millis(100));
            store.put(b"empty", b"").unwrap();
            store.put(b"large", &[7; 100_003]).unwrap();
            store.put(b"late", &[0, 1, 0xff]).unwrap();
        }
        let start = Instant::now();
        let missing = "no rank stored the key 'none'";
        assert_eq!(store.try_get(b"none"), Err((codes::NOT_FOUND, missing.into())));
        assert_eq!(store.get(b"none", 100), Err((codes::DEADLINE_EXCEEDED, format!("{missing} within 0.1 s"))));
        assert!(start.elapsed() < Duration::from_secs(20));
        comm.barrier("of the test").unwrap();
        let before = "rank 1 stored the key 'late' twice: store a key once".to_owned();
        assert_eq!(store.put(b"late", b"2"), Err((codes::ALREADY_EXISTS, before)));
        assert_eq!(store.put(&[b'k'; 70_000], b"").unwrap_err().0, codes::INVALID_ARGUMENT);
        let not_text = (codes::INVALID_ARGUMENT, "the key \\xff is not UTF-8".to_owned());
        assert_eq!(store.get(b"\xff", 0), Err(not_text));
    });
}

#[test]
fn a_panic_does_not_reach_the_plugin() {
    let store = Communicator::single().key_value_store();
    let raw = ptr::from_ref(&store).cast_mut().cast();
    // SAFETY: the store is alive.
    let found = unsafe { answer(raw, b"key", |_, _| -> Result<(), Failure> { panic!("of the test") }) };
    assert_eq!(found, Err((codes::INTERNAL, "the key-value store of the ranks panicked".into())));
}
