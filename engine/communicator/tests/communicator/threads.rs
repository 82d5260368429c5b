//! Collectives between threads.

use grove_communicator::{CommError, Communicator, Result, Wire};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
    time::Duration,
};

/// Returns the results of all ranks.
fn on_ranks<T: Send>(size: usize, body: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    on(Communicator::threads(size), body)
}

fn on<T: Send>(ranks: Vec<Communicator>, body: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|comm| scope.spawn(|| body(comm))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Returns numbers whose sum depends on the order of addition.
fn numbers(rank: usize, length: usize) -> Vec<f32> {
    (0..length).map(|i| ((rank * 31 + i * 7) % 13) as f32 * 10f32.powi((rank + i) as i32 % 7 - 3)).collect()
}

/// Returns the sums in the order of the ranks.
fn sums(size: usize, length: usize) -> Vec<f32> {
    let mut sums = numbers(0, length);
    (1..size).for_each(|rank| sums.iter_mut().zip(numbers(rank, length)).for_each(|(sum, x)| *sum += x));
    sums
}

#[test]
fn all_reduce_adds_in_the_order_of_the_ranks() {
    for size in 1..6 {
        for length in [0, 1, 2, 3, 7, 100] {
            let found = on_ranks(size, |comm| comm.all_reduce("numbers", numbers(comm.rank(), length)));
            for sum in found {
                assert_eq!(sum.expect("sums"), sums(size, length), "{size} ranks, {length} numbers");
            }
        }
    }
}

#[test]
fn reduce_scatter_gives_parts_of_the_same_sums() {
    let parts = on_ranks(3, |comm| comm.reduce_scatter("numbers", numbers(comm.rank(), 10)).expect("sums"));
    assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [4, 3, 3]);
    assert_eq!(parts.concat(), sums(3, 10));
    let ends = [0, 9, 10];
    let parts = on_ranks(3, |comm| comm.reduce_scatter_at("numbers", numbers(comm.rank(), 10), &ends).expect("sums"));
    assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [0, 9, 1]);
    assert_eq!(parts.concat(), sums(3, 10));
}

#[test]
fn all_gather_takes_arrays_of_any_length() {
    let found = on_ranks(3, |comm| comm.all_gather("lists", vec![comm.rank() as u64; comm.rank()]).expect("lists"));
    assert!(found.iter().all(|lists| *lists == [vec![], vec![1], vec![2, 2]]), "{found:?}");
}

#[test]
fn broadcast_gives_what_rank_0_has() {
    for size in 1..5 {
        let found = on_ranks(size, |comm| {
            let own = if comm.rank() == 0 { numbers(0, 11) } else { vec![] };
            let text = if comm.rank() == 0 { "an oak" } else { "" };
            let text = comm.broadcast_text("a text", text.to_owned()).expect("a text");
            (comm.broadcast("numbers", own).expect("numbers"), text)
        });
        assert!(found.iter().all(|(values, text)| *values == numbers(0, 11) && text == "an oak"), "{found:?}");
    }
}

#[test]
fn several_reductions_are_under_way_at_once() {
    let found = on_ranks(2, |comm| -> Result<_> {
        let start = |i| comm.start_all_reduce("numbers", vec![i as f64 + comm.rank() as f64], Wire::Full);
        let mut pending = (0..5).map(start).collect::<Result<Vec<_>>>()?;
        // One rank waits in order; the other polls all of them.
        while comm.rank() == 1 && !pending.iter_mut().try_fold(true, |all, next| Ok(next.poll()? && all))? {
            thread::yield_now();
        }
        pending.into_iter().map(|pending| Ok(pending.wait()?[0])).collect::<Result<Vec<f64>>>()
    });
    assert!(found.iter().all(|sums| sums.as_deref() == Ok(&[1.0, 3.0, 5.0, 7.0, 9.0])), "{found:?}");
}

#[test]
fn reserved_reductions_start_in_any_order() {
    let found = on_ranks(3, |comm| -> Result<_> {
        let reserved: Vec<_> = (0..3).map(|_| comm.reserve()).collect();
        let mut numbered: Vec<_> = reserved.into_iter().enumerate().collect();
        numbered.rotate_left(comm.rank());
        let between = comm.all_reduce("others", vec![1.0])?;
        let start = |(i, reserved)| {
            let values = vec![(i * 10 + comm.rank()) as f64];
            Ok((i, comm.start_all_reduce_as(reserved, "numbers", values, Wire::Full)?))
        };
        let mut pending = numbered.into_iter().map(start).collect::<Result<Vec<_>>>()?;
        pending.sort_by_key(|(i, _)| *i);
        let sums = pending.into_iter().map(|(_, pending)| Ok(pending.wait()?[0])).collect::<Result<Vec<f64>>>()?;
        Ok([between, sums].concat())
    });
    assert!(found.iter().all(|sums| sums.as_deref() == Ok(&[3.0, 3.0, 33.0, 63.0])), "{found:?}");
}

#[test]
fn bf16_halves_the_bytes_and_rounds_twice() {
    let found = on_ranks(2, |comm| {
        let values = vec![1.0 + comm.rank() as f32 / 512.0; 8];
        let sums = comm.start_all_reduce("numbers", values, Wire::Bf16).and_then(|pending| pending.wait());
        (sums.expect("sums"), comm.bytes_sent())
    });
    // 1 + 1/512 is rounded to 1, as bf16 has 8 bits.
    assert!(found.iter().all(|(sums, bytes)| *sums == [2.0; 8] && *bytes == 16), "{found:?}");
}

#[test]
fn bytes_match_the_bound() {
    for size in [2, 4, 8] {
        let sent = on_ranks(size, |comm| comm.all_reduce("numbers", vec![1f32; 800]).map(|_| comm.bytes_sent()));
        let bound = (2 * 800 * 4 * (size - 1) / size) as u64;
        assert!(sent.iter().all(|sent| *sent == Ok(bound)), "{sent:?} {bound}");
    }
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let ranks = Communicator::threads_with_timeout(3, Duration::from_millis(100));
    let found = on(ranks, |comm| match comm.rank() {
        1 => {
            thread::sleep(Duration::from_millis(600));
            None
        }
        _ => Some(comm.all_reduce("gradients", vec![1f32; 3])),
    });
    for error in found.into_iter().flatten() {
        let error = error.expect_err("rank 1 is late");
        let CommError::TimedOut { missing, .. } = &error else { panic!("{error}") };
        assert_eq!(missing.iter().map(|rank| rank.number).collect::<Vec<_>>(), [1]);
        let message = error.to_string();
        assert!(message.contains("rank 1") && message.contains("all_reduce of gradients"), "{message}");
    }
}

#[test]
fn a_rank_that_has_left_is_named() {
    let found = on_ranks(2, |comm| (comm.rank() == 0).then(|| comm.barrier("at the end")));
    let error = found.into_iter().flatten().next().expect("rank 0").expect_err("rank 1 has left");
    assert!(matches!(&error, CommError::Left { rank, .. } if rank.number == 1), "{error:?}");
}

#[test]
fn devices_start_when_all_ranks_are_there() {
    let (there, started) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let found = on_ranks(3, |comm| {
        thread::sleep(Duration::from_millis(30 * comm.rank() as u64));
        there.fetch_add(1, SeqCst);
        let start = || {
            started.fetch_add(1, SeqCst);
            if there.load(SeqCst) == 3 { Ok(()) } else { Err("too early".into()) }
        };
        comm.run_on_devices("all_reduce of gradients", start, || Ok(started.load(SeqCst) == 3))
    });
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    let alone = Communicator::single().run_on_devices("all_reduce of gradients", || Ok(()), || Err("broken".into()));
    assert_eq!(alone.unwrap_err().to_string(), "all_reduce of gradients: broken");
}

#[test]
fn a_rank_whose_device_others_wait_for_is_named() {
    let ranks = Communicator::threads_with_timeout(3, Duration::from_millis(100));
    let found = on(ranks, |comm| match comm.rank() {
        1 => {
            thread::sleep(Duration::from_millis(600));
            None
        }
        _ => Some(comm.run_on_devices("all_reduce of gradients", || panic!("it starts alone"), || Ok(true))),
    });
    for error in found.into_iter().flatten() {
        let error = error.expect_err("rank 1 is late");
        let CommError::TimedOut { missing, .. } = &error else { panic!("{error}") };
        assert_eq!(missing.iter().map(|rank| rank.number).collect::<Vec<_>>(), [1]);
    }
}

#[test]
fn a_device_that_sees_a_dead_rank_first_names_it() {
    let found = on_ranks(3, |comm| match comm.rank() {
        1 => {
            let dies = move || comm.run_on_devices("all_reduce of gradients", || Ok(()), || panic!("rank 1 dies"));
            catch_unwind(AssertUnwindSafe(dies)).expect_err("it panics");
            None
        }
        _ => Some(comm.run_on_devices("all_reduce of gradients", || Ok(()), || Err("a peer is gone".into()))),
    });
    for error in found.into_iter().flatten() {
        let error = error.expect_err("rank 1 is dead");
        assert!(matches!(&error, CommError::Died { rank, .. } if rank.number == 1), "{error:?}");
    }
}

#[test]
fn arrays_of_other_lengths_are_refused() {
    let ranks = Communicator::threads_with_timeout(2, Duration::from_secs(5));
    let found = on(ranks, |comm| comm.all_reduce("gradients", vec![1f32; 4 + 2 * comm.rank()]));
    let errors: Vec<CommError> = found.into_iter().filter_map(Result::err).collect();
    assert!(errors.iter().any(|error| matches!(error, CommError::OtherSize { .. })), "{errors:?}");
}

#[test]
fn differing_ranks_are_named() {
    let facts = |seed: usize| vec![("version".to_owned(), "1".to_owned()), ("seed".to_owned(), seed.to_string())];
    assert!(on_ranks(3, |comm| comm.agree("settings", &facts(7))).iter().all(Result::is_ok));
    for error in on_ranks(3, |comm| comm.agree("settings", &facts(comm.rank() / 2))) {
        let message = error.expect_err("rank 2 has another seed").to_string();
        assert!(message.contains("seed is 1 on rank 2 and 0 on rank 0: every rank"), "{message}");
    }
    let fewer = |rank: usize| facts(0).into_iter().take(2 - rank).collect::<Vec<_>>();
    let message =
        on_ranks(2, |comm| comm.agree("settings", &fewer(comm.rank()))).remove(0).expect_err("fewer").to_string();
    assert!(message.contains("seed is missing on rank 1"), "{message}");
}
