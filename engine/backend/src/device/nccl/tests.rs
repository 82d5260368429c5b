use super::*;
use std::cell::RefCell;

thread_local! {
    /// Calls of this thread, and the name of the call that fails.
    static CALLS: RefCell<(Vec<&'static str>, &'static str)> = const { RefCell::new((Vec::new(), "")) };
}

/// Records a call and returns its status.
fn called(name: &'static str) -> c_int {
    CALLS.with_borrow_mut(|(calls, fails)| {
        calls.push(name);
        c_int::from(name == *fails) * 5
    })
}

/// Returns the calls since the last time, and makes the named function fail from then on.
fn calls(fails: &'static str) -> Vec<&'static str> {
    CALLS.with_borrow_mut(|(calls, failing)| {
        *failing = fails;
        std::mem::take(calls)
    })
}

/// Records a call that writes its result, unless it fails.
fn given<T>(name: &'static str, to: *mut T, value: T) -> c_int {
    let status = called(name);
    if status == 0 {
        // SAFETY: the code under test passes pointers to live variables.
        unsafe { to.write(value) };
    }
    status
}

fn fake() -> &'static Libraries {
    fn thing<T>(number: usize) -> *mut T {
        ptr::without_provenance_mut(number)
    }
    unsafe extern "C" fn device(to: *mut c_int, index: c_int) -> c_int {
        given("device", to, index)
    }
    unsafe extern "C" fn retain(to: *mut *mut c_void, _: c_int) -> c_int {
        given("retain", to, thing(1))
    }
    unsafe extern "C" fn new_stream(to: *mut *mut c_void, _: c_uint) -> c_int {
        given("new stream", to, thing(2))
    }
    unsafe extern "C" fn new_event(to: *mut *mut c_void, _: c_uint) -> c_int {
        given("new event", to, thing(3))
    }
    unsafe extern "C" fn start(to: *mut *mut c_void, _: c_int, _: UniqueId, _: c_int) -> c_int {
        given("start", to, thing(4))
    }
    unsafe extern "C" fn all_reduce(
        _: *const c_void,
        _: *mut c_void,
        count: usize,
        _: c_int,
        _: c_int,
        _: *mut c_void,
        _: *mut c_void,
    ) -> c_int {
        called(if count == 0 { "empty sum" } else { "sum" })
    }
    macro_rules! plain {
        ($($function:ident($($argument:ty),*) = $name:literal;)*) => {$(
            unsafe extern "C" fn $function($(_: $argument),*) -> c_int {
                called($name)
            }
        )*};
    }
    plain! {
        init(c_uint) = "init";
        uuid(*mut [u8; 16], c_int) = "uuid";
        set_context(*mut c_void) = "set context";
        release(c_int) = "release";
        destroy_stream(*mut c_void) = "destroy stream";
        destroy_event(*mut c_void) = "destroy event";
        record(*mut c_void, *mut c_void) = "record";
        query(*mut c_void) = "query";
        unique_id(*mut UniqueId) = "unique id";
        abort(*mut c_void) = "abort";
        group_start() = "group start";
        group_end() = "group end";
        async_error(*mut c_void, *mut c_int) = "async error";
    }
    let driver = Driver {
        init,
        device,
        uuid,
        retain_context: retain,
        release_context: release,
        set_context,
        new_stream,
        destroy_stream,
        new_event,
        destroy_event,
        record,
        query,
    };
    let nccl = Nccl { unique_id, start, abort, all_reduce, group_start, group_end, async_error };
    // Any library without NCCL's functions.
    let library = SharedLibrary::load("libc.so.6").expect("glibc");
    Box::leak(Box::new(Libraries { driver, nccl, library }))
}

#[test]
fn groups_end_if_a_sum_fails() {
    let group = Group::start_with(fake(), 3, &[0; ID_BYTES], 0, 2).expect("a group");
    assert_eq!(calls(""), ["device", "retain", "set context", "new stream", "new event", "start"]);
    let array = |count| DeviceArray { send: 8, receive: 8, count, dtype: DType::F32 };
    group.all_reduce(&[array(1), array(0)]).expect("sums");
    assert_eq!(calls("empty sum"), ["set context", "group start", "sum", "empty sum", "group end", "record"]);
    let error = group.all_reduce(&[array(1), array(0), array(1)]).expect_err("a sum is refused");
    assert!(error.starts_with("ncclAllReduce of NCCL fails (status 5)"), "{error}");
    assert_eq!(calls("group end"), ["set context", "group start", "sum", "empty sum", "group end"]);
    let error = group.all_reduce(&[array(1)]).expect_err("the group is refused");
    assert!(error.starts_with("ncclGroupEnd of NCCL fails (status 5)"), "{error}");
    calls("");
    drop(group);
    assert_eq!(calls(""), ["set context", "abort", "destroy event", "destroy stream", "release"]);
}

#[test]
fn frees_resources_if_the_start_fails() {
    let freed = |fails: &'static str| {
        calls(fails);
        assert!(Group::start_with(fake(), 0, &[0; ID_BYTES], 0, 2).is_err(), "{fails}");
        let all = calls("");
        let failed = all.iter().position(|call| *call == fails).expect("the call that fails");
        all[failed + 1..].to_vec()
    };
    assert_eq!(freed("start"), ["set context", "destroy event", "destroy stream", "release"]);
    assert_eq!(freed("new stream"), ["set context", "release"]);
    assert_eq!(freed("retain"), [""; 0]);
}
