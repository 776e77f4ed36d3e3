//! The Arrow C data interface: arrays that leave for pyarrow, and arrays of bytes that come from it.

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::{mem, ptr};

use pyo3::Borrowed;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyTuple};

use crate::pool::{Item, Memory, Place, give, reserved};
use crate::validity::Validity;

pub const ARRAY: &CStr = c"arrow_array";

/// `ArrowArray` of the C data interface.
#[repr(C)]
pub struct ArrowArray {
    pub length: i64,
    pub null_count: i64,
    pub offset: i64,
    pub n_buffers: i64,
    pub n_children: i64,
    pub buffers: *mut *const c_void,
    pub children: *mut *mut ArrowArray,
    pub dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// Validity, offsets and data.
const MOST_BUFFERS: usize = 3;

/// What an exported array owns; in one allocation for the most part, since arrays of few records are made often.
struct Owned {
    _buffers: [Option<Buffer>; MOST_BUFFERS],
    pointers: [*const c_void; MOST_BUFFERS],
    children: Vec<ArrowArray>,
    child_pointers: Vec<*mut ArrowArray>,
}

/// The memory of one buffer; never read from here again.
pub struct Buffer(Option<Memory>);

impl Buffer {
    pub fn new<T: Item>(values: Vec<T>) -> Self {
        Self(Some(T::wrap(values)))
    }

    fn pointer(&self) -> *const c_void {
        self.0.as_ref().map_or(ptr::null(), Memory::pointer)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(memory) = self.0.take() {
            give(memory);
        }
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: the interface calls this once, with an array made by `exported`. A consumer that has moved a child out
    // has cleared its callback.
    unsafe {
        let mut owned = Box::from_raw((*array).private_data.cast::<Owned>());
        for child in &mut owned.children {
            if let Some(release) = child.release {
                release(child);
            }
        }
        (*array).release = None;
    }
}

/// An array with a bitmap of its own, and one or two buffers; `null` arrays have none.
pub fn exported(
    length: usize,
    validity: Validity,
    buffers: [Option<Buffer>; 2],
    children: Vec<ArrowArray>,
) -> ArrowArray {
    let (bits, null_count) = validity.into_parts();
    let [first, second] = buffers;
    let n_buffers = 1 + i64::from(first.is_some()) + i64::from(second.is_some());
    let n_children = children.len() as i64;
    let buffers = [bits.map(Buffer::new), first, second];
    let pointers = buffers.each_ref().map(|buffer| buffer.as_ref().map_or(ptr::null(), Buffer::pointer));
    let mut owned = Box::new(Owned { _buffers: buffers, pointers, children, child_pointers: Vec::new() });
    owned.child_pointers = owned.children.iter_mut().map(ptr::from_mut).collect();
    // SAFETY of the pointers: into a box and vectors that neither move nor change until they are released.
    let owned = Box::into_raw(owned);
    let (buffers, children) = unsafe { ((&raw mut (*owned).pointers).cast(), (*owned).child_pointers.as_mut_ptr()) };
    ArrowArray {
        length: length as i64,
        null_count,
        offset: 0,
        n_buffers,
        n_children,
        buffers,
        children,
        dictionary: ptr::null_mut(),
        release: Some(release_array),
        private_data: owned.cast(),
    }
}

/// An exported array on its way to the consumer.
pub struct Held(ArrowArray);

// SAFETY: the array owns all that it points to.
unsafe impl Send for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: the consumer has not taken it.
            unsafe { release(&mut self.0) };
        }
    }
}

impl Held {
    pub fn new(array: ArrowArray) -> Self {
        Self(array)
    }
}

/// How arrays get into pyarrow: its function of a pointer and a type, which moves the array out.
///
/// By the capsules of the interface pyarrow would compile the type anew for each array, field by field.
pub struct Importer {
    import: Py<PyAny>,
    kind: Py<PyAny>,
}

impl Importer {
    pub fn new(import: &Bound<'_, PyAny>, kind: &Bound<'_, PyAny>) -> Self {
        Self { import: import.clone().unbind(), kind: kind.clone().unbind() }
    }

    /// A `pyarrow.Array`.
    pub fn import<'py>(&self, py: Python<'py>, mut array: Held) -> PyResult<Bound<'py, PyAny>> {
        self.import.bind(py).call1(((&raw mut array.0) as usize, &self.kind))
    }
}

/// A record, as it came.
#[derive(Clone, Copy)]
pub enum Record<'a> {
    Null,
    /// Not bytes.
    Other,
    Bytes(&'a [u8]),
}

/// The buffers of an array of the type `binary` or `large_binary`.
#[derive(Clone, Copy)]
pub struct Bytes {
    count: usize,
    offset: usize,
    validity: *const u8,
    offsets: *const u8,
    data: *const u8,
    is_large: bool,
}

impl Bytes {
    fn end(&self, row: usize) -> usize {
        let at = self.offset + row;
        // SAFETY: an array has one offset more than rows.
        unsafe {
            if self.is_large {
                self.offsets.cast::<i64>().add(at).read_unaligned() as usize
            } else {
                self.offsets.cast::<i32>().add(at).read_unaligned() as usize
            }
        }
    }

    fn is_valid(&self, row: usize) -> bool {
        let at = self.offset + row;
        // SAFETY: the row is within the array.
        self.validity.is_null() || unsafe { *self.validity.add(at / 8) } >> (at % 8) & 1 == 1
    }
}

/// An array of bytes of another library, which its capsules keep.
pub struct Input<'py> {
    pub bytes: Bytes,
    _capsules: [Bound<'py, PyCapsule>; 2],
}

impl<'py> Input<'py> {
    /// An array that exports itself; None if it is of another type.
    pub fn of(values: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let Ok(export) = values.getattr(intern!(values.py(), "__arrow_c_array__")) else { return Ok(None) };
        let (schema, capsule): (Bound<'py, PyCapsule>, Bound<'py, PyCapsule>) = export.call0()?.extract()?;
        let format = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<*const c_char>();
        // SAFETY: the capsule owns the schema, which begins with its format.
        let is_large = match unsafe { CStr::from_ptr(*format.as_ptr()) }.to_bytes() {
            b"z" => false,
            b"Z" => true,
            _ => return Ok(None),
        };
        let pointer = capsule.pointer_checked(Some(ARRAY))?.cast::<ArrowArray>();
        // SAFETY: the capsule owns the array, which has the three buffers of its type.
        let (array, buffers) = unsafe { (pointer.as_ref(), std::slice::from_raw_parts(pointer.as_ref().buffers, 3)) };
        let [validity, offsets, data] = [buffers[0], buffers[1], buffers[2]].map(<*const c_void>::cast::<u8>);
        let count = if offsets.is_null() { 0 } else { array.length as usize };
        let bytes = Bytes { count, offset: array.offset as usize, validity, offsets, data, is_large };
        Ok(Some(Self { bytes, _capsules: [schema, capsule] }))
    }
}

/// Records that are read without the interpreter; their owner outlives this.
pub enum Rows<'a> {
    List(Vec<Place>, PhantomData<&'a [u8]>),
    Array(Bytes),
}

/// Of what is not bytes: None, and all else.
const NULL: Place = Place(ptr::null(), 0);
const OTHER: Place = Place(ptr::null(), 1);

// SAFETY: bytes and Arrow arrays are immutable.
unsafe impl Send for Rows<'_> {}
unsafe impl Sync for Rows<'_> {}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        if let Rows::List(places, _) = self {
            give(Place::wrap(mem::take(places)));
        }
    }
}

impl<'a> Rows<'a> {
    /// The items of a tuple, which keeps them; another thread could take them out of a list.
    pub fn of(records: &'a Bound<'_, PyTuple>) -> Self {
        let place = |record: Borrowed<'_, '_, PyAny>| match record.cast_exact::<PyBytes>() {
            Ok(data) => {
                let data = data.as_bytes();
                Place(data.as_ptr(), data.len())
            }
            Err(_) if record.is_none() => NULL,
            Err(_) => OTHER,
        };
        // The interpreter is locked: fresh memory would be cleared by the system meanwhile.
        let mut places = reserved(records.len()).unwrap_or_default();
        places.extend(records.iter_borrowed().map(place));
        Rows::List(places, PhantomData)
    }

    pub fn count(&self) -> usize {
        match self {
            Rows::List(places, _) => places.len(),
            Rows::Array(bytes) => bytes.count,
        }
    }

    /// The number of bytes of all records.
    pub fn size(&self) -> usize {
        match self {
            Rows::List(places, _) => places.iter().filter(|place| !place.0.is_null()).map(|place| place.1).sum(),
            Rows::Array(bytes) if bytes.count == 0 => 0,
            Rows::Array(bytes) => bytes.end(bytes.count) - bytes.end(0),
        }
    }

    #[inline]
    pub fn get(&self, row: usize) -> Record<'a> {
        match self {
            Rows::List(places, _) => match places[row] {
                place if place == NULL => Record::Null,
                place if place == OTHER => Record::Other,
                // SAFETY: bytes neither change nor move, and the tuple keeps them.
                Place(data, size) => Record::Bytes(unsafe { std::slice::from_raw_parts(data, size) }),
            },
            Rows::Array(bytes) if !bytes.is_valid(row) => Record::Null,
            Rows::Array(bytes) => {
                let (begin, end) = (bytes.end(row), bytes.end(row + 1));
                if begin == end {
                    return Record::Bytes(&[]); // the data may be null
                }
                // SAFETY: the offsets are within the data.
                Record::Bytes(unsafe { std::slice::from_raw_parts(bytes.data.add(begin), end - begin) })
            }
        }
    }
}
