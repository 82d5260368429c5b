//! Compiling a loop twice and choosing one, and dividing work among threads.

/// Defines a function whose body is also compiled with AVX2 and FMA, and calls that where the CPU has them.
///
/// A name in angle brackets is a constant that the body may ask whether products and sums can be fused here: without the
/// instruction, `mul_add` is a call into the C library. A type may follow.
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
                if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                    // SAFETY: the CPU has what the function was compiled for.
                    return unsafe { with_avx2$(::<$type>)?($($arg),*) };
                }
            }
            body::<$($type,)? { cfg!(target_arch = "aarch64") }>($($arg),*)
        }
    };
}
pub(crate) use vectorized;

/// Elements that are worth a task of their own: some tens of microseconds.
pub(crate) const TASK: usize = 1 << 14;

/// Rows of this length that make a task.
pub(crate) fn rows_per_task(columns: usize) -> usize {
    (TASK / columns.max(1)).max(1)
}

/// Runs something on a thread of the pool. What consists of several parallel parts is run so: each part that is begun from
/// outside would put a thread to sleep and wake others, and the system may wake two of them on one core.
pub fn in_pool<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| run())
}

/// Bytes of a thread's stack: as many as a program's first thread usually has.
const STACK: usize = 8 << 20;

/// Runs a whole program on a thread of the pool, for which see [`in_pool`]: none of its kernels then wakes more than those
/// that help it. Makes the pool, if there is none yet.
pub fn as_worker<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    // If somebody has made the pool before, its stacks are as large as they wanted.
    let _ = rayon::ThreadPoolBuilder::new().stack_size(STACK).build_global();
    // The one thread of a pool would wait in vain for others that want its help: those that read data, say.
    if rayon::current_num_threads() == 1 { run() } else { in_pool(run) }
}
