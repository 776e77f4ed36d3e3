//! Arrow arrays into records, over the Arrow C data interface, without Python objects.
//!
//! A compiled schema is bound to each array: the types decide whether it is taken at all, and each row whether its
//! values are. A row that is not taken is null in the result, and its number is returned.

use std::collections::HashSet;
use std::ffi::{CStr, c_char};
use std::ops::RangeInclusive;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::builder::Builder;
use crate::interface::{ARRAY, ArrowArray, Held, Importer};
use crate::layout::Layout;
use crate::schema::{Id, Kind, Schema, refused};
use crate::wire::{Refused, Result, quiet, write_bytes, write_long};

/// Python's dates are of the years 1 to 9999.
const DAYS: RangeInclusive<i64> = -719_162..=2_932_896;
const MICROSECONDS: RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

const DAY: i64 = 86_400_000_000;

/// The beginning of `ArrowSchema` of the C data interface.
#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
}

/// Encodes arrays by one schema.
#[pyclass(frozen, module = "serde_chain._native")]
pub struct ColumnEncoder {
    schema: Schema,
    prefix: Vec<u8>,
    importer: Importer,
}

#[pymethods]
impl ColumnEncoder {
    /// Compile a schema.
    ///
    /// Args: the schema in fastavro's parsed form; the bytes in front of each record; whether schemas with maps are
    /// refused, since equal maps must give equal bytes; fastavro's functions for logical types; and pyarrow's function that imports an array from a pointer and
    /// a type, with the type `binary`.
    #[new]
    fn new(
        schema: &Bound<'_, PyAny>,
        prefix: Vec<u8>,
        ordered: bool,
        logical: &Bound<'_, PyDict>,
        import: &Bound<'_, PyAny>,
        kind: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let schema = Schema::compile_columns(schema, logical)?;
        if ordered && schema.types.iter().any(|each| matches!(each.kind, Kind::Map(_))) {
            return Err(PyValueError::new_err("it has maps"));
        }
        Ok(Self { schema, prefix, importer: Importer::new(import, kind) })
    }

    /// Encode an array, without the interpreter.
    ///
    /// Args: the two capsules of an array.
    ///
    /// Returns: a `pyarrow.BinaryArray`, and the rows that are not taken, which are null.
    ///
    /// Fails with ValueError for an array of a type that is not taken.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        schema: &Bound<'py, PyCapsule>,
        array: &Bound<'py, PyCapsule>,
    ) -> PyResult<(Bound<'py, PyAny>, Vec<usize>)> {
        let kind = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<ArrowSchema>();
        let data = array.pointer_checked(Some(ARRAY))?.cast::<ArrowArray>();
        // SAFETY: the capsules own both, and are alive until the end.
        let (column, count) = unsafe {
            let data = data.as_ref();
            let count = usize::try_from(data.length).map_err(|_| PyValueError::new_err("its length is negative"))?;
            (bind(py, &self.schema, self.schema.root, kind.as_ref(), data, count)?, count)
        };
        let mut builder = Builder::new(&Layout::Binary, count, 0);
        let mut left = Vec::new();
        py.detach(|| {
            let mut out = Vec::new();
            for row in 0..count {
                if !column.is_valid(row) {
                    builder.null();
                    continue;
                }
                out.clear();
                out.extend_from_slice(&self.prefix);
                if column.write(row, &mut out).and_then(|()| builder.binary(&out)).is_err() {
                    left.push(row);
                    builder.null();
                }
            }
        });
        Ok((self.importer.import(py, Held::new(builder.export()))?, left))
    }
}

/// Values of one Avro type in an array.
struct Column {
    /// Added to a row, also for the fields of a record.
    offset: usize,
    validity: *const u8,
    values: Values,
}

// SAFETY: Arrow arrays are immutable.
unsafe impl Send for Column {}
unsafe impl Sync for Column {}

enum Values {
    Null,
    Boolean(*const u8),
    Long(Number),
    Int(Number),
    Date(Number),
    /// With the number of units in a day.
    Time(Number, i64),
    /// In a unit, for a schema that has microseconds, or milliseconds.
    Timestamp(Number, Unit),
    Millis(Number, Unit),
    Float(Number),
    Double(Number),
    Bytes(Binary),
    String(Binary),
    Fixed(usize, Binary),
    Enum(Vec<Box<[u8]>>, Binary),
    /// The size in bytes if it is fixed, and the bound of the number.
    Decimal(*const u8, Option<usize>, i128),
    List(Offsets, Box<Column>),
    /// With the number of entries in front.
    Map(Offsets, usize, Box<[Column; 2]>),
    Record(Vec<Column>),
    /// The branch of null, if there is one, and the others; the first that has a value is written.
    Union(Option<i64>, Vec<(i64, Column)>),
}

/// What a number is multiplied with, or else divided by, to get microseconds: one of them is 1.
#[derive(Clone, Copy)]
struct Unit(i64, i64);

impl Unit {
    fn micros(self, value: i64) -> Result<i64> {
        let value = match self {
            Unit(factor, 1) => value.checked_mul(factor).ok_or(Refused)?, // a division takes longer than the rest
            Unit(_, by) if value % by != 0 => return Err(Refused),
            Unit(_, by) => value / by,
        };
        within(value, &MICROSECONDS)
    }
}

/// A buffer of numbers of one type.
#[derive(Clone, Copy)]
enum Number {
    I8(*const u8),
    I16(*const u8),
    I32(*const u8),
    I64(*const u8),
    F32(*const u8),
    F64(*const u8),
}

/// A buffer of offsets, each at most the given length of what they refer to.
struct Offsets {
    data: *const u8,
    is_large: bool,
    most: usize,
}

enum Binary {
    Variable(Offsets, *const u8),
    Fixed(*const u8, usize),
}

/// SAFETY: valid structures of the C data interface, which outlive the column; a type and an array may disagree in all
/// that they show: their numbers of buffers and children, and lengths.
unsafe fn bind(
    py: Python<'_>,
    schema: &Schema,
    id: Id,
    kind: &ArrowSchema,
    array: &ArrowArray,
    needed: usize,
) -> PyResult<Column> {
    unsafe {
        if kind.format.is_null() || !kind.dictionary.is_null() || !array.dictionary.is_null() {
            return refused("a column is a dictionary");
        }
        let format = CStr::from_ptr(kind.format).to_bytes();
        let (Ok(length), Ok(offset)) = (usize::try_from(array.length), usize::try_from(array.offset)) else {
            return refused("an array is malformed");
        };
        let expected = match format {
            b"n" => 0,
            b"+s" => 1,
            b"z" | b"Z" | b"u" | b"U" => 3,
            _ => 2,
        };
        if length < needed
            || offset.checked_add(length).is_none_or(|end| end > isize::MAX as usize / 16)
            || array.n_buffers != expected
            || array.n_children != kind.n_children
            || (expected > 0 && array.buffers.is_null())
        {
            return refused("an array is malformed");
        }
        let buffer = |at: usize| -> *const u8 { (*array.buffers.add(at)).cast() };
        let validity = if expected > 0 { buffer(0) } else { std::ptr::null() };
        // Arrays without values may have no buffers.
        if length > 0 && (1..expected.min(2)).any(|at| buffer(at as usize).is_null()) {
            return refused("an array is malformed");
        }
        let child = |at: usize| -> PyResult<(&ArrowSchema, &ArrowArray)> {
            if at as i64 >= kind.n_children || kind.children.is_null() || array.children.is_null() {
                return refused("an array is malformed");
            }
            match ((*kind.children.add(at)).as_ref(), (*array.children.add(at)).as_ref()) {
                (Some(kind), Some(array)) => Ok((kind, array)),
                _ => refused("an array is malformed"),
            }
        };
        let own = schema.get(id);
        let logical = match &own.logical {
            Some(logical) => Some(logical.key.bind(py).to_cow()?.into_owned()),
            None => None,
        };
        if let (Kind::Union(branches), None) = (&own.kind, &logical) {
            let others: Vec<_> = branches.iter().enumerate().filter(|(_, at)| !is_null(schema, **at)).collect();
            let null = branches.iter().position(|&at| is_null(schema, at)).map(|at| at as i64);
            let (mut validity, mut members) = (std::ptr::null(), Vec::with_capacity(others.len()));
            if let [(at, branch)] = others[..] {
                members.push((at as i64, bind(py, schema, *branch, kind, array, needed)?));
            } else {
                if format != b"+s" || kind.n_children as usize != others.len() || others.is_empty() {
                    return refused("a union is not a struct of members");
                }
                validity = buffer(0);
                for (member, (at, branch)) in others.into_iter().enumerate() {
                    let (kind, array) = child(member)?;
                    let is_right = !kind.name.is_null()
                        && CStr::from_ptr(kind.name).to_bytes() == format!("member{member}").as_bytes();
                    if !is_right {
                        return refused("a union is not a struct of members");
                    }
                    members.push((at as i64, bind(py, schema, *branch, kind, array, offset + length)?));
                }
            }
            let offset = if members.len() == 1 { 0 } else { offset };
            return Ok(Column { offset, validity, values: Values::Union(null, members) });
        }
        let number = || {
            Some(match format {
                b"c" => Number::I8(buffer(1)),
                b"s" => Number::I16(buffer(1)),
                b"i" => Number::I32(buffer(1)),
                b"l" => Number::I64(buffer(1)),
                b"f" => Number::F32(buffer(1)),
                b"g" => Number::F64(buffer(1)),
                _ => return None,
            })
        };
        let whole = || number().filter(|number| !matches!(number, Number::F32(_) | Number::F64(_)));
        let offsets = |most| Offsets { data: buffer(1), is_large: matches!(format, b"Z" | b"U" | b"+L"), most };
        let binary = || {
            let size = format.strip_prefix(b"w:").and_then(|size| std::str::from_utf8(size).ok()?.parse().ok());
            match size {
                Some(size) => Some(Binary::Fixed(buffer(1), size)),
                None if matches!(format, b"z" | b"Z") => {
                    Some(Binary::Variable(offsets(isize::MAX as usize), buffer(2)))
                }
                None => None,
            }
        };
        let text = || match format {
            b"u" | b"U" => Some(Binary::Variable(offsets(isize::MAX as usize), buffer(2))),
            _ => None,
        };
        // A time zone says how a moment is shown, not which it is.
        let micros = |zone: bool| {
            let unit = match format.get(..4)? {
                b"tss:" => Unit(1_000_000, 1),
                b"tsm:" => Unit(1000, 1),
                b"tsu:" => Unit(1, 1),
                b"tsn:" => Unit(1, 1000),
                _ => return None,
            };
            (zone == (format.len() > 4)).then(|| (Number::I64(buffer(1)), unit))
        };
        let found = match (&own.kind, logical.as_deref()) {
            (Kind::Null, None) if format == b"n" => Some(Values::Null),
            (Kind::Boolean, None) if format == b"b" => Some(Values::Boolean(buffer(1))),
            (Kind::Int, None) => whole().map(Values::Int),
            (Kind::Long, None) => whole().map(Values::Long),
            (Kind::Float, None) => number().filter(|_| matches!(format, b"f" | b"g")).map(Values::Float),
            (Kind::Double, None) => number().filter(|_| format != b"l").map(Values::Double),
            (Kind::Int, Some("int-date")) if format == b"tdD" => Some(Values::Date(Number::I32(buffer(1)))),
            (Kind::Int, Some("int-time-millis")) if format == b"ttm" => {
                Some(Values::Time(Number::I32(buffer(1)), DAY / 1000))
            }
            (Kind::Long, Some("long-time-micros")) if format == b"ttu" => {
                Some(Values::Time(Number::I64(buffer(1)), DAY))
            }
            (Kind::Int, Some("int-date" | "int-time-millis")) => whole().map(Values::Int),
            (Kind::Long, Some("long-timestamp-micros")) if format.starts_with(b"ts") => {
                micros(true).map(|(number, unit)| Values::Timestamp(number, unit))
            }
            (Kind::Long, Some("long-timestamp-millis")) if format.starts_with(b"ts") => {
                micros(true).map(|(number, unit)| Values::Millis(number, unit))
            }
            (Kind::Long, Some("long-local-timestamp-micros")) if format.starts_with(b"ts") => {
                micros(false).map(|(number, unit)| Values::Timestamp(number, unit))
            }
            (Kind::Long, Some("long-local-timestamp-millis")) if format.starts_with(b"ts") => {
                micros(false).map(|(number, unit)| Values::Millis(number, unit))
            }
            (Kind::Long, Some(name)) if name.starts_with("long-") => whole().map(Values::Long),
            (Kind::Bytes, None) => binary().map(Values::Bytes),
            (Kind::Fixed(size), None) => binary().map(|data| Values::Fixed(*size, data)),
            (Kind::String, None | Some("string-uuid")) => text().map(Values::String),
            (Kind::Enum(symbols), None) => {
                let mut texts = Vec::new();
                for symbol in symbols.symbols.iter().flatten() {
                    texts.push(symbol.bind(py).extract::<String>()?.into_bytes().into());
                }
                text().map(|data| Values::Enum(texts, data))
            }
            (Kind::Bytes, Some("bytes-decimal")) | (Kind::Fixed(_), Some("fixed-decimal")) => {
                let size = if let Kind::Fixed(size) = &own.kind { Some(*size) } else { None };
                let declared =
                    own.logical.as_ref().map(|logical| logical.schema.bind(py)).and_then(|it| it.cast().ok());
                match declared {
                    Some(declared) => decimal_bound(declared, format)?
                        .filter(|_| size.is_none_or(|size| (1..=16).contains(&size)))
                        .map(|bound| Values::Decimal(buffer(1), size, bound)),
                    None => None,
                }
            }
            (Kind::Array(items), None) if matches!(format, b"+l" | b"+L") => {
                let (kind, array) = child(0)?;
                let items = bind(py, schema, *items, kind, array, 0)?;
                Some(Values::List(offsets(length_of(array)), Box::new(items)))
            }
            (Kind::Map(values), None) if format == b"+m" => {
                let (kind, array) = child(0)?;
                let count = length_of(array);
                let (Ok(skipped), true) = (usize::try_from(array.offset), array.n_children == 2) else {
                    return refused("a map is malformed");
                };
                let ends = skipped.checked_add(count).ok_or_else(|| PyValueError::new_err("a map is malformed"))?;
                if kind.n_children != 2 || kind.children.is_null() || array.children.is_null() {
                    return refused("a map is malformed");
                }
                let inner = |at: usize| match ((*kind.children.add(at)).as_ref(), (*array.children.add(at)).as_ref()) {
                    (Some(kind), Some(array)) => Ok((kind, array)),
                    _ => refused("a map is malformed"),
                };
                let ((key_kind, keys), (value_kind, items)) = (inner(0)?, inner(1)?);
                let text = Schema::text();
                let keys = bind(py, &text, text.root, key_kind, keys, ends)?;
                let items = bind(py, schema, *values, value_kind, items, ends)?;
                Some(Values::Map(offsets(count), skipped, Box::new([keys, items])))
            }
            (Kind::Record(record), None) if format == b"+s" => {
                let mut names = Vec::new();
                for at in 0..usize::try_from(kind.n_children).unwrap_or(0) {
                    let name = child(at)?.0.name;
                    names.push(if name.is_null() { &[] } else { CStr::from_ptr(name).to_bytes() });
                }
                let mut columns = Vec::new();
                for field in &record.fields {
                    let Some(name) = &field.name else { return refused("a field has no name") };
                    let name = name.bind(py).to_cow()?.into_owned();
                    let mut places = (0..names.len()).filter(|&at| names[at] == name.as_bytes());
                    let (Some(at), None) = (places.next(), places.next()) else {
                        return refused("a field is missing, or there twice");
                    };
                    let (kind, array) = child(at)?;
                    columns.push(bind(py, schema, field.kind, kind, array, offset + length)?);
                }
                // Within unions, fastavro compares this key with the record's name.
                if names.contains(&b"-type".as_slice()) || has_duplicates(names) {
                    return refused("a name of a field is special, or there twice");
                }
                Some(Values::Record(columns))
            }
            _ => None,
        };
        match found {
            Some(values) => Ok(Column { offset, validity, values }),
            None => refused("a type does not match the schema"),
        }
    }
}

fn length_of(array: &ArrowArray) -> usize {
    usize::try_from(array.length).unwrap_or(0)
}

fn is_null(schema: &Schema, id: Id) -> bool {
    matches!(schema.get(id).kind, Kind::Null)
}

fn has_duplicates(mut names: Vec<&[u8]>) -> bool {
    names.sort_unstable();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

/// The bound of a decimal's number, if the column has the same scale.
fn decimal_bound(declared: &Bound<'_, PyDict>, format: &[u8]) -> PyResult<Option<i128>> {
    let number = |key: &str| -> PyResult<Option<i64>> { declared.get_item(key)?.map(|it| it.extract()).transpose() };
    let (precision, scale) = (number("precision")?, number("scale")?.unwrap_or(0));
    let Some((_, own)) = format.strip_prefix(b"d:").and_then(|it| std::str::from_utf8(it).ok()?.split_once(',')) else {
        return Ok(None);
    };
    let same = own.parse() == Ok(scale); // of 128 bits: others name their width
    let precision = precision.and_then(|it| u32::try_from(it).ok()).filter(|_| same);
    Ok(precision.map(|it| 10i128.checked_pow(it).unwrap_or(i128::MAX)))
}

impl Column {
    fn is_valid(&self, row: usize) -> bool {
        match &self.values {
            Values::Null => false,
            Values::Union(_, members) => self.member(members, row).is_some(),
            _ => self.is_there(row),
        }
    }

    /// What the array's own bitmap says: in line, since each value asks it.
    #[inline(always)]
    fn is_there(&self, row: usize) -> bool {
        // SAFETY: the row is within the array.
        self.validity.is_null() || unsafe { bit(self.validity, row + self.offset) }
    }

    /// The first member of a union with a value.
    fn member<'a>(&self, members: &'a [(i64, Column)], row: usize) -> Option<&'a (i64, Column)> {
        let is_there = self.is_there(row);
        members.iter().find(|(_, member)| is_there && member.is_valid(row + self.offset))
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        if let Values::Union(null, members) = &self.values {
            let Some((at, member)) = self.member(members, row) else {
                write_long(out, null.ok_or(Refused)?);
                return Ok(());
            };
            write_long(out, *at);
            return member.write(row + self.offset, out);
        }
        if matches!(self.values, Values::Null) {
            return Ok(());
        }
        if !self.is_there(row) {
            return Err(Refused);
        }
        let at = row + self.offset;
        match &self.values {
            Values::Null | Values::Union(..) => {}
            // SAFETY: the row is within the array.
            Values::Boolean(data) => out.push(u8::from(unsafe { bit(*data, at) })),
            Values::Long(number) => write_long(out, number.whole(at)?),
            Values::Int(number) => {
                let value = number.whole(at)?;
                i32::try_from(value).map_err(|_| Refused)?;
                write_long(out, value);
            }
            Values::Date(number) => write_long(out, within(number.whole(at)?, &DAYS)?),
            Values::Time(number, day) => write_long(out, within(number.whole(at)?, &(0..=*day - 1))?),
            Values::Timestamp(number, unit) => write_long(out, unit.micros(number.whole(at)?)?),
            Values::Millis(number, unit) => write_long(out, unit.micros(number.whole(at)?)?.div_euclid(1000)),
            Values::Float(number) => {
                let value = number.real(at)?;
                let narrow = value as f32;
                if narrow.is_infinite() && value.is_finite() {
                    return Err(Refused);
                }
                out.extend_from_slice(&quiet(narrow).to_le_bytes());
            }
            Values::Double(number) => out.extend_from_slice(&number.real(at)?.to_le_bytes()),
            Values::Bytes(binary) => write_bytes(out, binary.get(at)?),
            Values::String(binary) => write_bytes(out, text(binary.get(at)?)?),
            Values::Fixed(size, binary) => {
                let data = binary.get(at)?;
                if data.len() != *size {
                    return Err(Refused);
                }
                out.extend_from_slice(data);
            }
            Values::Enum(symbols, binary) => {
                let data = binary.get(at)?;
                let index = symbols.iter().position(|symbol| **symbol == *data).ok_or(Refused)?;
                write_long(out, index as i64);
            }
            Values::Decimal(data, size, bound) => {
                // SAFETY: the row is within the array.
                let value = unsafe { data.cast::<i128>().add(at).read_unaligned() };
                decimal(value, *size, *bound, out)?;
            }
            Values::List(offsets, items) => {
                let (begin, end) = offsets.get(at)?;
                if begin < end {
                    write_long(out, (end - begin) as i64);
                    (begin..end).try_for_each(|item| items.write(item, out))?;
                }
                out.push(0);
            }
            Values::Map(offsets, skipped, entries) => {
                let (begin, end) = offsets.get(at)?;
                let [keys, items] = &**entries;
                if begin < end {
                    write_long(out, (end - begin) as i64);
                    let mut seen = HashSet::with_capacity(end - begin);
                    for entry in begin + skipped..end + skipped {
                        let Values::String(binary) = &keys.values else { return Err(Refused) };
                        keys.write(entry, out)?;
                        // In a dictionary the last value of a key counts.
                        if !seen.insert(binary.get(entry + keys.offset)?) {
                            return Err(Refused);
                        }
                        items.write(entry, out)?;
                    }
                }
                out.push(0);
            }
            Values::Record(columns) => columns.iter().try_for_each(|column| column.write(at, out))?,
        }
        Ok(())
    }
}

/// SAFETY: the bitmap has the bit.
#[inline]
unsafe fn bit(bits: *const u8, at: usize) -> bool {
    unsafe { *bits.add(at / 8) >> (at % 8) & 1 == 1 }
}

fn within(value: i64, range: &RangeInclusive<i64>) -> Result<i64> {
    if range.contains(&value) { Ok(value) } else { Err(Refused) }
}

fn text(data: &[u8]) -> Result<&[u8]> {
    if data.is_ascii() || std::str::from_utf8(data).is_ok() { Ok(data) } else { Err(Refused) }
}

/// A number big-endian, in the fewest bytes or in the given number of them.
fn decimal(value: i128, size: Option<usize>, bound: i128, out: &mut Vec<u8>) -> Result<()> {
    if value <= -bound || value >= bound {
        return Err(Refused);
    }
    let bits = (128 - value.unsigned_abs().leading_zeros()) as usize;
    let bytes = value.to_be_bytes();
    match size {
        Some(size) if bits + 1 > 8 * size => return Err(Refused),
        Some(size) => out.extend_from_slice(&bytes[16 - size..]),
        None => write_bytes(out, &bytes[16 - ((bits + 8) >> 3).min(16)..]),
    }
    Ok(())
}

impl Number {
    #[inline]
    fn whole(self, at: usize) -> Result<i64> {
        // SAFETY: the row is within the array.
        unsafe {
            Ok(match self {
                Number::I8(data) => i64::from(data.cast::<i8>().add(at).read_unaligned()),
                Number::I16(data) => i64::from(data.cast::<i16>().add(at).read_unaligned()),
                Number::I32(data) => i64::from(data.cast::<i32>().add(at).read_unaligned()),
                Number::I64(data) => data.cast::<i64>().add(at).read_unaligned(),
                Number::F32(_) | Number::F64(_) => return Err(Refused),
            })
        }
    }

    #[inline]
    fn real(self, at: usize) -> Result<f64> {
        // SAFETY: the row is within the array.
        unsafe {
            Ok(match self {
                Number::F32(data) => f64::from(data.cast::<f32>().add(at).read_unaligned()),
                Number::F64(data) => data.cast::<f64>().add(at).read_unaligned(),
                _ => self.whole(at)? as f64,
            })
        }
    }
}

impl Offsets {
    #[inline]
    fn get(&self, at: usize) -> Result<(usize, usize)> {
        // SAFETY: the row is within the array, which has one offset more.
        let [begin, end] = [at, at + 1].map(|at| unsafe {
            if self.is_large {
                self.data.cast::<i64>().add(at).read_unaligned()
            } else {
                i64::from(self.data.cast::<i32>().add(at).read_unaligned())
            }
        });
        match (usize::try_from(begin), usize::try_from(end)) {
            (Ok(begin), Ok(end)) if begin <= end && end <= self.most => Ok((begin, end)),
            _ => Err(Refused),
        }
    }
}

impl Binary {
    #[inline]
    fn get(&self, at: usize) -> Result<&[u8]> {
        let (data, begin, size) = match self {
            Binary::Variable(offsets, data) => {
                let (begin, end) = offsets.get(at)?;
                (*data, begin, end - begin)
            }
            Binary::Fixed(data, size) => (*data, at.checked_mul(*size).ok_or(Refused)?, *size),
        };
        if size == 0 {
            return Ok(&[]); // the data may be null
        }
        if data.is_null() {
            return Err(Refused);
        }
        // SAFETY: the row is within the array, whose offsets are within its data.
        Ok(unsafe { std::slice::from_raw_parts(data.add(begin), size) })
    }
}
