//! Arrays in host memory, without a copy. On the CPU plugin, like `cpu.rs`.

use crate::common::{ADD, add, bytes, client, f32s, floats};
use grove_xla::{Argument, ArrayType, Buffer, Client, CompileOptions, Executable, Program, XlaError};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

/// Four numbers at an address that plugins read in place; one number later, at an address that they do not.
#[repr(align(64))]
struct Aligned([u8; 32]);

struct Owner {
    data: Arc<Aligned>,
    start: usize,
    drops: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.data.0[self.start..self.start + 16]
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.drops.fetch_add(1, SeqCst);
    }
}

/// Bytes of the numbers 1, 2, 3, 4, and the number of dropped owners.
struct Source {
    data: Arc<Aligned>,
    start: usize,
    drops: Arc<AtomicUsize>,
}

impl Source {
    fn new(start: usize) -> Self {
        let mut data = [0; 32];
        data[start..start + 16].copy_from_slice(&bytes(&[1.0, 2.0, 3.0, 4.0]));
        Self { data: Arc::new(Aligned(data)), start, drops: Arc::default() }
    }

    fn owner(&self) -> Owner {
        Owner { data: self.data.clone(), start: self.start, drops: self.drops.clone() }
    }

    fn buffer(&self, client: &Client) -> Buffer {
        Buffer::from_shared(&client.device(0).unwrap(), &f32s(&[4]), self.owner()).unwrap()
    }

    /// Waits until `count` owners are dropped.
    fn assert_drops(&self, count: usize) {
        let end = Instant::now() + Duration::from_secs(20);
        while self.drops.load(SeqCst) != count && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.drops.load(SeqCst), count);
        assert_eq!(self.data.0[self.start..self.start + 16], bytes(&[1.0, 2.0, 3.0, 4.0]));
    }
}

fn identity(client: &Client) -> Executable {
    let text = "func.func @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
        return %x : tensor<4xf32>
    }";
    client.compile(Program { text, parameters: &[f32s(&[4])] }, &CompileOptions::default()).unwrap()
}

#[test]
fn the_owner_lives_as_long_as_the_buffer() {
    let Some(client) = client(1) else { return };
    let (.., program) = add(&client);
    let source = Source::new(0);
    let x = source.buffer(&client);
    assert_eq!(floats(&x), [1.0, 2.0, 3.0, 4.0]);
    // No copy was made.
    source.assert_drops(0);
    let sum = program.run(vec![Argument::Keep(&x), Argument::Keep(&x)]).unwrap();
    assert_eq!(floats(&sum[0]), [2.0, 4.0, 6.0, 8.0]);
    source.assert_drops(0);
    drop(x);
    source.assert_drops(1);
    // The buffer outlives the handle of its client.
    let x = source.buffer(&client);
    drop((client, program, sum));
    assert_eq!(floats(&x), [1.0, 2.0, 3.0, 4.0]);
    source.assert_drops(1);
    drop(x);
    source.assert_drops(2);
}

#[test]
fn unaligned_bytes_are_copied() {
    let Some(client) = client(1) else { return };
    let source = Source::new(4);
    let x = source.buffer(&client);
    source.assert_drops(1);
    assert_eq!(floats(&x), [1.0, 2.0, 3.0, 4.0]);
}

/// A program that may overwrite its argument copies a shared one.
#[test]
fn donated_bytes_are_not_written() {
    let Some(client) = client(2) else { return };
    let (.., program) = add(&client);
    let identity = identity(&client);
    let y = Buffer::from_host(&client.device(0).unwrap(), &f32s(&[4]), &bytes(&[1.0; 4])).unwrap();
    let source = Source::new(0);
    // Each way to access the memory, followed by a program that writes to its argument.
    let shared = || source.buffer(&client);
    let device = |index| client.device(index).unwrap();
    let ways: [&dyn Fn() -> Buffer; 6] = [
        &shared,
        &|| identity.run(vec![Argument::Donate(shared())]).unwrap().remove(0),
        &|| identity.run(vec![Argument::Keep(&shared())]).unwrap().remove(0),
        &|| shared().to_device(&device(0)).unwrap(),
        &|| shared().to_device(&device(1)).unwrap().to_device(&device(0)).unwrap(),
        &|| {
            let x = identity.run(vec![Argument::Donate(shared())]).unwrap().remove(0);
            identity.run(vec![Argument::Donate(x)]).unwrap().remove(0)
        },
    ];
    for (index, way) in ways.iter().enumerate() {
        let sum = program.run(vec![Argument::Donate(way()), Argument::Keep(&y)]).unwrap().remove(0);
        let sum = program.run(vec![Argument::Donate(sum), Argument::Keep(&y)]).unwrap().remove(0);
        assert_eq!(floats(&sum), [3.0, 4.0, 5.0, 6.0], "{index}");
        drop(sum);
        source.assert_drops(index + 1);
    }
}

/// Two buffers of the same bytes, one of them donated.
#[test]
fn bytes_are_shared_between_buffers() {
    let Some(client) = client(1) else { return };
    let (.., program) = add(&client);
    let source = Source::new(0);
    let (x, y) = (source.buffer(&client), source.buffer(&client));
    let sum = program.run(vec![Argument::Donate(x), Argument::Keep(&y)]).unwrap();
    assert_eq!((floats(&sum[0]), floats(&y)), (vec![2.0, 4.0, 6.0, 8.0], vec![1.0, 2.0, 3.0, 4.0]));
    source.assert_drops(1);
    drop(y);
    source.assert_drops(2);
}

#[test]
fn the_owner_is_dropped_with_an_error() {
    let Some(client) = client(1) else { return };
    let source = Source::new(0);
    let error = Buffer::from_shared(&client.device(0).unwrap(), &f32s(&[5]), source.owner()).unwrap_err();
    assert_eq!(error, XlaError::HostSize { found: 16, expected: "f32[5]".into() });
    source.assert_drops(1);
}

#[test]
fn empty_arrays_are_shared() {
    let Some(client) = client(1) else { return };
    let device = client.device(0).unwrap();
    let array: ArrayType = f32s(&[0, 4]);
    let x = Buffer::from_shared(&device, &array, Vec::new()).unwrap();
    assert!(x.to_host().unwrap().is_empty());
}

#[test]
fn a_panic_of_the_owner_does_not_unwind_into_the_plugin() {
    struct Panics(Vec<u8>);
    impl AsRef<[u8]> for Panics {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("a panic that a test wants");
        }
    }
    let Some(client) = client(1) else { return };
    let x = Buffer::from_shared(&client.device(0).unwrap(), &f32s(&[4]), Panics(vec![0; 16])).unwrap();
    assert_eq!(floats(&x), [0.0; 4]);
    drop(x);
}

/// The bytes outlive the programs that read them, although the buffers and the client are dropped earlier.
#[test]
fn running_programs_keep_the_owner() {
    let Some(client) = client(1) else { return };
    let array = f32s(&[4]);
    let program = Program { text: ADD, parameters: &[array.clone(), array.clone()] };
    let program = client.compile(program, &CompileOptions::default()).unwrap();
    let source = Source::new(0);
    let sums: Vec<Buffer> = (0..100)
        .map(|_| {
            let x = source.buffer(&client);
            program.run(vec![Argument::Keep(&x), Argument::Keep(&x)]).unwrap().remove(0)
        })
        .collect();
    drop((program, client));
    assert!(sums.iter().all(|sum| floats(sum) == [2.0, 4.0, 6.0, 8.0]));
    source.assert_drops(100);
}
