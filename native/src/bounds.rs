//! Records whose schema does not bound them, before they become objects: recursive ones, and items of many parts.

use crate::schema::{Id, Kind, Schema};
use crate::wire::{Cursor, Refused, Result};

/// Each level takes some stack. Python decides about values of more, and of more levels than it reads.
const MOST_LEVELS: usize = 200;

/// Refuse a record of more parts, by the rule of `serde_chain.schemas.part_budget`, or of items that take no bytes.
pub fn check(schema: &Schema, body: &[u8], most: usize) -> Result<()> {
    let mut walk = Walk { schema, cursor: Cursor::new(body), left: most };
    walk.pass(schema.root, MOST_LEVELS)
}

struct Walk<'a> {
    schema: &'a Schema,
    cursor: Cursor<'a>,
    left: usize,
}

impl Walk<'_> {
    fn pass(&mut self, id: Id, levels: usize) -> Result<()> {
        let levels = levels.checked_sub(1).ok_or(Refused)?;
        let schema = self.schema;
        let kind = &schema.get(id).kind;
        if let Kind::Union(branches) = kind {
            let branch = branches[self.cursor.index(branches.len())?];
            return self.pass(branch, levels);
        }
        self.count()?;
        match kind {
            Kind::Null => {}
            Kind::Boolean => _ = self.cursor.byte()?,
            Kind::Int | Kind::Long | Kind::LongAsDouble | Kind::Enum(_) => _ = self.cursor.long()?,
            Kind::Float => _ = self.cursor.take(4)?,
            Kind::Double => _ = self.cursor.take(8)?,
            Kind::Bytes | Kind::StringAsBytes | Kind::String => _ = self.cursor.bytes()?,
            Kind::Fixed(size) => _ = self.cursor.take(*size)?,
            Kind::Record(record) => record.fields.iter().try_for_each(|field| self.pass(field.kind, levels))?,
            Kind::Array(items) => self.items(*items, levels, false)?,
            Kind::Map(values) => self.items(*values, levels, true)?,
            Kind::Union(_) | Kind::Unresolved => return Err(Refused),
        }
        Ok(())
    }

    fn items(&mut self, id: Id, levels: usize, have_keys: bool) -> Result<()> {
        loop {
            let count = self.cursor.block()?;
            if count == 0 {
                return Ok(());
            }
            for _ in 0..count {
                let before = self.cursor.left();
                if have_keys {
                    self.count()?;
                    self.cursor.bytes()?;
                }
                self.pass(id, levels)?;
                if self.cursor.left() == before {
                    return Err(Refused);
                }
            }
        }
    }

    fn count(&mut self) -> Result<()> {
        self.left = self.left.checked_sub(1).ok_or(Refused)?;
        Ok(())
    }
}
