//! Compilation of loops for several instruction sets, dispatch at run time, and division of work among threads.

use rayon::prelude::*;

/// Defines a function whose body is also compiled with AVX2 and FMA, and with AVX-512. Calls the best version that the CPU
/// supports; see [`CpuCapability`].
///
/// The name in angle brackets is a constant, true if fused multiply-add is available: without the instruction, `mul_add`
/// calls the C library. A type parameter may follow.
macro_rules! vectorized {
    (
        $(#[$attribute:meta])*
        fn $name:ident<$fused:ident $(, $type:ident: $bound:path)?>($($arg:ident: $ty:ty),* $(,)?) $(-> $out:ty)? $body:block
    ) => {
        $(#[$attribute])*
        #[allow(clippy::too_many_arguments)]
        pub(crate) fn $name$(<$type: $bound>)?($($arg: $ty),*) $(-> $out)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body<$($type: $bound,)? const $fused: bool>($($arg: $ty),*) $(-> $out)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn with_avx2$(<$type: $bound>)?($($arg: $ty),*) $(-> $out)? {
                    body::<$($type,)? true>($($arg),*)
                }
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn with_avx512$(<$type: $bound>)?($($arg: $ty),*) $(-> $out)? {
                    body::<$($type,)? true>($($arg),*)
                }
                match $crate::dispatch::CpuCapability::get() {
                    // SAFETY: `get` returns a level only if the CPU has its instruction sets and those of the levels below, and
                    // the function is compiled for those of AVX-512.
                    $crate::dispatch::CpuCapability::Amx | $crate::dispatch::CpuCapability::Avx512 => return unsafe { with_avx512$(::<$type>)?($($arg),*) },
                    // SAFETY: as for AVX-512.
                    $crate::dispatch::CpuCapability::Avx2 => return unsafe { with_avx2$(::<$type>)?($($arg),*) },
                    $crate::dispatch::CpuCapability::Baseline => {}
                }
            }
            body::<$($type,)? { cfg!(target_arch = "aarch64") }>($($arg),*)
        }
    };
}
pub(crate) use vectorized;

/// Instruction sets for which loops are compiled. Each level is a superset of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpuCapability {
    /// Instruction sets of every CPU of the target.
    Baseline,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 of Skylake servers and Zen 4.
    Avx512,
    /// AVX512-BF16, and products of tiles of bf16 (AMX) of Sapphire Rapids. Linux only.
    Amx,
}

impl CpuCapability {
    /// Returns the best level that this CPU supports, or a lower one if the environment variable `GROVE_CPU_CAPABILITY` is
    /// `avx512`, `avx2` or `baseline` at the first call, which helps to determine whether an instruction set causes a problem. All of grove's
    /// loops that are compiled for several instruction sets use this function.
    ///
    /// A level above [`Baseline`](Self::Baseline) is returned only if the CPU has all its instruction sets.
    #[inline(always)]
    pub fn get() -> Self {
        static CAPABILITY: std::sync::OnceLock<CpuCapability> = std::sync::OnceLock::new();
        *CAPABILITY.get_or_init(|| match std::env::var("GROVE_CPU_CAPABILITY").as_deref() {
            Ok("baseline") => Self::Baseline,
            Ok("avx2") => Self::best().min(Self::Avx2),
            Ok("avx512") => Self::best().min(Self::Avx512),
            _ => Self::best(),
        })
    }

    #[cfg(target_arch = "x86_64")]
    fn best() -> Self {
        use std::arch::is_x86_feature_detected as has;
        let avx2 = has!("avx2") && has!("fma");
        let avx512 = avx2 && has!("avx512f") && has!("avx512vl") && has!("avx512bw") && has!("avx512dq");
        if avx512 && has!("avx512bf16") && may_use_tiles() {
            Self::Amx
        } else if avx512 {
            Self::Avx512
        } else if avx2 {
            Self::Avx2
        } else {
            Self::Baseline
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn best() -> Self {
        Self::Baseline
    }
}

/// Returns true if the CPU multiplies tiles of bf16. Asks Linux to let this process use them, which it must allow.
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
fn may_use_tiles() -> bool {
    /// Request for a part of a thread's state that Linux saves only for processes that asked (`asm/prctl.h`).
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    /// Number of the part that has the tiles' elements.
    const XTILEDATA: libc::c_long = 18;
    /// Bits of the register EDX: products of bf16, and tiles.
    const FEATURES: u32 = 1 << 22 | 1 << 24;
    let found = std::arch::x86_64::__cpuid_count(7, 0).edx;
    // SAFETY: the request has no pointers, and grants all threads of the process a larger state.
    found & FEATURES == FEATURES && unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0 }
}

#[cfg(all(target_arch = "x86_64", not(all(target_os = "linux", target_env = "gnu"))))]
fn may_use_tiles() -> bool {
    false
}

/// Runs a closure on each chunk of a slice, on the threads of the pool. The closure gets the index and the chunk.
pub fn for_chunks<T: Send>(items: &mut [T], chunk: usize, run: impl Fn(usize, &mut [T]) + Sync) {
    items.par_chunks_mut(chunk).enumerate().for_each(|(i, chunk)| run(i, chunk));
}

/// Prefetches memory that will be read soon. The address may be invalid: nothing is dereferenced.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
#[inline(always)]
pub(crate) fn prefetch<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction ignores invalid addresses, and every x86-64 CPU has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
}

/// Number of elements that justifies a separate task: some tens of microseconds.
pub(crate) const TASK: usize = 1 << 14;

/// Number of elements that stay in the first-level cache between zeroing and computation.
pub(crate) const PIECE: usize = 1 << 11;

/// Returns the number of rows of `columns` elements in a piece.
pub(crate) fn rows_per_piece(columns: usize) -> usize {
    (PIECE / columns.max(1)).max(1)
}

/// Returns the number of rows of `columns` elements in a task.
pub(crate) fn rows_per_task(columns: usize) -> usize {
    (TASK / columns.max(1)).max(1)
}

/// Runs a closure on a thread of the pool. Use it around several parallel regions: each region that is started from outside
/// the pool puts one thread to sleep and wakes others, and the system may wake two of them on one core.
pub fn in_pool<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| run())
}

/// Stack size of a thread in bytes, the usual size for a program's first thread.
const STACK: usize = 8 << 20;

/// Runs a whole program on a thread of the pool; see [`in_pool`]. Its kernels then wake only the threads that help them.
/// Builds the pool if it does not exist yet.
pub fn as_worker<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    // If the pool has been built before, it keeps its stack size.
    let _ = rayon::ThreadPoolBuilder::new().stack_size(STACK).build_global();
    if rayon::current_num_threads() > 1 {
        return in_pool(run);
    }
    // On the pool's only thread, the program would block other threads that need the pool, such as data loaders. So the calling
    // thread gets a pool of its own. Without it, each kernel would run on the other thread, which takes up to half of the time
    // of small kernels. Fails if the thread has such a pool, which remains until it ends.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
    run()
}
