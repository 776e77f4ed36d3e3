//! Columns of records into Arrow arrays.
//!
//! A record that is not taken leaves no trace in the column; its row is null, and its number is returned.

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::builder::Builder;
use crate::interface::{Held, Importer, Input, Record, Rows};
use crate::layout::Layout;
use crate::pairs::plan_of;
use crate::plan::Plan;
use crate::wire::Cursor;

/// Decodes records of one schema into an Arrow array.
#[pyclass(frozen, module = "serde_chain._native")]
pub struct ColumnDecoder {
    plan: Plan,
    layout: Layout,
    importer: Importer,
}

#[pymethods]
impl ColumnDecoder {
    /// Compile a pair of schemas.
    ///
    /// Args: the writer's and the reader's, both as rewritten for Arrow, the second None without resolution; the type
    /// of the column, and the type with timestamps in the written unit; the maximum number of types; and pyarrow's
    /// function that imports an array from a pointer and a type.
    #[new]
    fn new(
        writer: &Bound<'_, PyAny>,
        reader: &Bound<'_, PyAny>,
        kind: &Bound<'_, PyAny>,
        as_read: &Bound<'_, PyAny>,
        most: usize,
        import: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let layout = Layout::of(kind, as_read, 0)?;
        let plan = plan_of(writer, if reader.is_none() { writer } else { reader }, &layout, most)?;
        Ok(Self { plan, layout, importer: Importer::new(import, kind) })
    }

    /// Decode records, without the interpreter.
    ///
    /// Args: a list of bytes and None, or an Arrow array of the type `binary` or `large_binary`; the length of the
    /// records' framing; and the bytes with which a record begins, if it is taken.
    ///
    /// Returns: a `pyarrow.Array`, null where a record is None or not taken, and the rows that are not taken. None if
    /// the records are neither list nor array.
    #[pyo3(signature = (records, start, prefix, /))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        records: &Bound<'py, PyAny>,
        start: usize,
        prefix: &[u8],
    ) -> PyResult<Option<(Bound<'py, PyAny>, Vec<usize>)>> {
        let (array, left) = if let Ok(list) = records.cast_exact::<PyList>() {
            let kept = list.to_tuple();
            let rows = Rows::of(&kept);
            py.detach(|| self.column(&rows, start, prefix))
        } else {
            let Some(input) = Input::of(records)? else { return Ok(None) };
            let rows = Rows::Array(input.bytes);
            py.detach(|| self.column(&rows, start, prefix))
        };
        Ok(Some((self.importer.import(py, array)?, left)))
    }
}

impl ColumnDecoder {
    fn column(&self, rows: &Rows<'_>, start: usize, prefix: &[u8]) -> (Held, Vec<usize>) {
        let mut builder = Builder::new(&self.layout, rows.count(), rows.size());
        let mut left = Vec::new();
        for row in 0..rows.count() {
            match rows.get(row) {
                Record::Null => {
                    builder.null();
                    continue;
                }
                Record::Bytes(data) if data.len() >= start && data.starts_with(prefix) => {
                    let mut cursor = Cursor::new(&data[start..]);
                    if self.plan.read(&mut cursor, &mut builder).is_ok() && cursor.is_at_end() {
                        continue;
                    }
                }
                _ => {}
            }
            builder.truncate(row);
            left.push(row);
            builder.null();
        }
        (Held::new(builder.export()), left)
    }
}
