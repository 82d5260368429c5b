//! Key-value stores between threads.

use grove_communicator::{CommError, Communicator, KeyValueStore, Result};
use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

/// A timeout that no get of these tests reaches.
const LONG: Duration = Duration::from_secs(30);

/// Returns the results of all ranks, each of which has a store.
fn on_ranks<T: Send>(size: usize, body: impl Fn(&Communicator, KeyValueStore) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let run = |comm: Communicator| {
            let store = comm.key_value_store();
            body(&comm, store)
        };
        let ranks = Communicator::threads(size).into_iter();
        let threads: Vec<_> = ranks.map(|comm| scope.spawn(move || run(comm))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn key(i: usize) -> String {
    format!("local_topology/cuda/{i}")
}

#[test]
fn every_rank_gets_what_any_has_put() {
    for size in 1..5 {
        let found = on_ranks(size, |comm, store| -> Result<Vec<Vec<u8>>> {
            // Some gets precede the put, because lower ranks put later.
            thread::sleep(Duration::from_millis(20 * (size - comm.rank()) as u64));
            store.put(&key(comm.rank()), &[comm.rank() as u8; 3])?;
            let values = (0..size).map(|rank| store.get(&key(rank), LONG)).collect();
            comm.barrier("of the test")?;
            assert_eq!(store.try_get(&key(size))?, None);
            values
        });
        let expected: Vec<Vec<u8>> = (0..size).map(|rank| vec![rank as u8; 3]).collect();
        assert!(found.iter().all(|values| values.as_ref() == Ok(&expected)), "{found:?}");
    }
}

#[test]
fn a_get_times_out() {
    let found = on_ranks(2, |comm, store| {
        let start = Instant::now();
        let found = store.get("an oak", Duration::from_millis(200));
        assert!(start.elapsed() >= Duration::from_millis(200) && start.elapsed() < LONG);
        comm.barrier("of the test").expect("both come");
        found
    });
    for error in found {
        let error = error.expect_err("nobody has put it");
        assert!(matches!(&error, CommError::NoKey { key, .. } if key == "an oak"), "{error:?}");
        assert_eq!(error.to_string(), "no rank stored the key 'an oak' within 0.2 s");
    }
}

#[test]
fn a_key_is_put_once() {
    let found = on_ranks(2, |comm, store| -> Result<_> {
        if comm.rank() == 1 {
            store.put("an oak", b"1")?;
        }
        store.get("an oak", LONG)?;
        let again = store.put("an oak", b"1");
        // Another store has its own keys.
        comm.key_value_store().put(&key(comm.rank()), b"2")?;
        store.put(&key(comm.rank()), b"3")?;
        comm.barrier("of the test")?;
        Ok((again, store.get(&key(1), LONG)?))
    });
    for result in found {
        let (again, other) = result.expect("values");
        let error = again.expect_err("it has a value");
        assert!(matches!(&error, CommError::AlreadyPut { rank, .. } if rank.number == 1), "{error:?}");
        assert_eq!(error.to_string(), "rank 1 stored the key 'an oak' twice: store a key once");
        assert_eq!(other, b"3");
    }
}

#[test]
fn rejects_two_values_for_one_key() {
    let together = Barrier::new(2);
    let found = on_ranks(2, |comm, store| -> Result<_> {
        // For equal bytes, a rank cannot determine which came first.
        let put = (store.put("same", b"0"), store.put("other", &[comm.rank() as u8]));
        together.wait();
        comm.barrier("of the test")?;
        // The key does not exist, so this call receives everything that has arrived.
        store.try_get("nothing")?;
        Ok((put, store.get("same", LONG)?, store.get("other", LONG)))
    });
    let found: Vec<_> = found.into_iter().map(|result| result.expect("values")).collect();
    assert!(found.iter().all(|(_, same, _)| same == b"0"), "{found:?}");
    // Either a put was rejected, or both ranks have noticed the conflict.
    if found.iter().all(|((_, put), ..)| put.is_ok()) {
        for (.., value) in found {
            let message = value.expect_err("two values").to_string();
            assert!(message.contains("different values for the key 'other'"), "{message}");
            assert!(message.contains("rank 0") && message.contains("rank 1"), "{message}");
        }
    }
}

#[test]
fn large_values_arrive_and_larger_ones_are_refused() {
    let most = 64 << 20;
    let found = on_ranks(2, |comm, store| -> Result<_> {
        if comm.rank() == 0 {
            store.put("large", &vec![7; most])?;
        }
        comm.barrier("of the test")?;
        let error = store.put("larger", &vec![7; most + 1]).expect_err("too large");
        assert!(store.put(&"k".repeat((64 << 10) + 1), b"").is_err());
        Ok((store.get("large", LONG)?, error.to_string()))
    });
    for result in found {
        let (value, message) = result.expect("a value");
        assert!(value.len() == most && value.iter().all(|&byte| byte == 7));
        assert_eq!(message, "the value of the key 'larger' has 67108865 bytes; the maximum is 67108864");
    }
}

#[test]
fn many_keys_are_got_from_several_threads() {
    let (size, keys, threads) = (3, 300, 4);
    on_ranks(size, |comm, store| {
        thread::scope(|scope| {
            for thread in 0..threads {
                let store = &store;
                scope.spawn(move || {
                    for i in (thread..keys).step_by(threads) {
                        let value = store.get(&key(i), LONG).expect("a value");
                        assert_eq!(value, i.to_le_bytes());
                    }
                });
            }
            for i in (comm.rank()..keys).step_by(size) {
                store.put(&key(i), &i.to_le_bytes()).expect("put");
            }
        });
        comm.close().expect("all come");
    });
}

#[test]
fn a_get_waits_while_collectives_are_under_way() {
    let sums = on_ranks(2, |comm, store| {
        thread::scope(|scope| {
            let getter = scope.spawn(|| store.get("late", LONG));
            let mut sum = vec![1f32; 1000];
            for _ in 0..200 {
                sum = comm.all_reduce("numbers", sum).expect("sums");
                sum.iter_mut().for_each(|x| *x /= 2.0);
            }
            if comm.rank() == 1 {
                store.put("late", b"now").expect("put");
            }
            assert_eq!(getter.join().expect("no panic").as_deref(), Ok(&b"now"[..]));
            comm.close().expect("all come");
            sum
        })
    });
    assert!(sums.iter().all(|sum| *sum == [1.0; 1000]));
}

#[test]
fn a_get_fails_if_ranks_have_ended() {
    let found = on_ranks(3, |comm, store| (comm.rank() == 0).then(|| store.get("an oak", LONG)));
    let error = found.into_iter().flatten().next().expect("rank 0").expect_err("the others have left");
    assert!(matches!(&error, CommError::Left { .. }), "{error:?}");
    assert!(error.to_string().contains("get of the key 'an oak'"), "{error}");
    // A rank that has left may have had nothing to put.
    let found = on_ranks(3, |comm, store| match comm.rank() {
        0 => Some(store.get("an oak", LONG)),
        1 => None,
        _ => {
            thread::sleep(Duration::from_millis(2500));
            store.put("an oak", b"late").expect("put");
            thread::sleep(Duration::from_millis(100));
            None
        }
    });
    assert_eq!(found[0].as_ref().expect("rank 0").as_deref(), Ok(&b"late"[..]));
    let found = on_ranks(2, |comm, store| match comm.rank() {
        0 => Some(store.get("an oak", LONG)),
        _ => {
            comm.fails_first();
            None
        }
    });
    let error = found.into_iter().flatten().next().expect("rank 0").expect_err("rank 1 has failed");
    assert!(matches!(&error, CommError::Failed { rank, .. } if rank.number == 1), "{error:?}");
}

#[test]
fn one_rank_has_a_store_too() {
    let store = Communicator::single().key_value_store();
    store.put("an oak", b"1").expect("put");
    assert_eq!(store.get("an oak", Duration::ZERO).as_deref(), Ok(&b"1"[..]));
    assert_eq!(store.try_get("an elm"), Ok(None));
    let error = store.get("an elm", Duration::from_millis(20)).expect_err("nobody puts it");
    assert!(matches!(error, CommError::NoKey { .. }), "{error:?}");
    assert!(store.put("an oak", b"2").is_err());
}
