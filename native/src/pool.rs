//! Memory of freed arrays, kept for those of the next batches.
//!
//! Fresh memory costs more than what is copied into it, since the system clears each page, and threads wait for each
//! other meanwhile. glibc returns blocks of the size of columns to the system whenever they are freed.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;

/// Smaller blocks are malloc's.
const SMALLEST: usize = 1 << 14;
/// The columns of a batch that clients take at once (64 MiB: librdkafka's `queued.max.messages.kbytes`), and what they
/// reserve besides.
static MOST: AtomicUsize = AtomicUsize::new(72 << 20);
static POOL: Mutex<Pool> = Mutex::new(Pool { kept: VecDeque::new(), bytes: 0 });

/// A vector of one of the types that columns have, or of the records that they are read from.
pub enum Memory {
    Bytes(Vec<u8>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    I128(Vec<i128>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Places(Vec<Place>),
}

/// Where a record is: a pointer, and a number of bytes.
#[derive(Clone, Copy, PartialEq)]
pub struct Place(pub *const u8, pub usize);

// SAFETY: whoever reads the bytes says why they are alive; those in the pool are forgotten.
unsafe impl Send for Place {}

/// The oldest first.
struct Pool {
    kept: VecDeque<Memory>,
    bytes: usize,
}

/// A type of which vectors are kept.
pub trait Item: Sized {
    fn wrap(values: Vec<Self>) -> Memory;
    fn of(memory: &mut Memory) -> Option<&mut Vec<Self>>;
}

macro_rules! items {
    ($($kind:ty => $name:ident),*) => {
        $(impl Item for $kind {
            fn wrap(values: Vec<Self>) -> Memory {
                Memory::$name(values)
            }

            fn of(memory: &mut Memory) -> Option<&mut Vec<Self>> {
                if let Memory::$name(values) = memory { Some(values) } else { None }
            }
        })*

        impl Memory {
            pub fn pointer(&self) -> *const std::ffi::c_void {
                match self {
                    $(Memory::$name(values) => values.as_ptr().cast(),)*
                }
            }

            fn clear(&mut self) {
                match self {
                    $(Memory::$name(values) => values.clear(),)*
                }
            }

            fn size(&self) -> usize {
                match self {
                    $(Memory::$name(values) => values.capacity() * size_of::<$kind>(),)*
                }
            }
        }
    };
}

items!(u8 => Bytes, i32 => I32, i64 => I64, i128 => I128, f32 => F32, f64 => F64, Place => Places);

/// An empty vector for so many values; None if there is no memory for it.
pub fn reserved<T: Item>(count: usize) -> Option<Vec<T>> {
    if count.saturating_mul(size_of::<T>()) >= SMALLEST
        && let Some(values) = taken(count)
    {
        return Some(values);
    }
    let mut values = Vec::new();
    values.try_reserve_exact(count).ok().map(|()| values)
}

fn taken<T: Item>(count: usize) -> Option<Vec<T>> {
    let mut pool = POOL.try_lock().ok()?; // a forked process may find it locked for ever
    let is_right = |memory: &mut Memory| {
        T::of(memory).is_some_and(|values| (count..=count.saturating_mul(2)).contains(&values.capacity()))
    };
    let at = pool.kept.iter_mut().rposition(is_right)?;
    let mut memory = pool.kept.remove(at)?;
    pool.bytes -= memory.size();
    let values = std::mem::take(T::of(&mut memory)?);
    Some(values)
}

/// Keep the memory of a vector, instead of the oldest if there is too much.
pub fn give(mut memory: Memory) {
    let size = memory.size();
    let most = MOST.load(Ordering::Relaxed);
    if size < SMALLEST || size > most {
        return;
    }
    memory.clear();
    if let Ok(mut pool) = POOL.try_lock() {
        pool.bytes += size;
        pool.kept.push_back(memory);
        pool.shrink(most);
    }
}

impl Pool {
    fn shrink(&mut self, most: usize) {
        while self.bytes > most
            && let Some(oldest) = self.kept.pop_front()
        {
            self.bytes -= oldest.size();
        }
    }
}

/// Keep at most so many bytes from now on.
#[pyfunction]
pub fn keep(bytes: usize) {
    MOST.store(bytes, Ordering::Relaxed);
    if let Ok(mut pool) = POOL.try_lock() {
        pool.shrink(bytes);
    }
}
