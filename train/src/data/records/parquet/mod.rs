//! Parquet files, by the crate `parquet`.
//!
//! Files are untrusted. The crate panics on some malformed files, and allocates what some headers claim. So the schema
//! is checked first (`footer.rs`), pages are decompressed here (`pages.rs`, `codec.rs`), and panics become errors.

mod classes;
mod codec;
mod footer;
mod pages;
#[cfg(test)]
mod tests;
mod values;

use grove_files::FileError;
use grove_text::catch_panic;
use parquet::{
    errors::ParquetError,
    file::metadata::{ParquetMetaData, ParquetMetaDataReader},
    record::reader::{ReaderIter, TreeBuilder},
    schema::types::{SchemaDescriptor, Type, TypePtr},
};
use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{DataError, Place, Record, Records, Value};
use pages::RowGroup;

/// Number of values of a column that are decoded at once. Images are large.
const BATCH: usize = 128;

/// Maximum number of rows of a file, for each of its bytes and in addition. A larger data set of equal rows is refused.
const ROWS_PER_BYTE: u64 = 1024;
const FEW_ROWS: u64 = 1 << 20;

/// Size of a footer's end: the length of the metadata, and `PAR1`.
const END: u64 = 8;

/// Rows of a Parquet file, of selected columns. One page of each column is in memory at a time.
pub(super) struct ParquetRows {
    named: Arc<PathBuf>,
    file: Arc<File>,
    metadata: ParquetMetaData,
    /// The distinct columns to read.
    schema: Arc<SchemaDescriptor>,
    columns: Vec<Column>,
    /// Index of the next row group.
    group: usize,
    rows: Option<ReaderIter>,
    /// Number of rows that were read.
    row: u64,
    /// True after an error, after which the state of the crate's readers is undefined.
    failed: bool,
}

/// A column to return.
struct Column {
    /// Place among the columns that are read.
    index: usize,
    name: String,
    /// Names of the classes that integers stand for.
    classes: Option<Vec<String>>,
}

impl ParquetRows {
    pub(super) fn open(file: &Path, columns: &[&str]) -> Result<Self, DataError> {
        let failed = |reason: String| DataError::other(format!("{}: {reason}", file.display()));
        let mut opened = File::open(file).map_err(FileError::io("open", file))?;
        check_ends(&mut opened, file).map_err(failed)?;
        let metadata = catch_panic(|| ParquetMetaDataReader::new().parse_and_finish(&opened));
        let metadata = flat(metadata).map_err(|reason| failed(damaged(&reason)))?;
        check_chunks(&metadata, opened.metadata().map_err(FileError::io("read", file))?.len())
            .map_err(|reason| failed(damaged(&reason)))?;
        let (fields, columns) = select(&metadata, columns).map_err(failed)?;
        check_codecs(&metadata, &fields).map_err(failed)?;
        let schema = Type::group_type_builder("schema").with_fields(fields).build();
        let schema = schema.map_err(|error| failed(damaged(&error.to_string())))?;
        Ok(Self {
            named: Arc::new(file.to_owned()),
            file: Arc::new(opened),
            metadata,
            schema: Arc::new(SchemaDescriptor::new(Arc::new(schema))),
            columns,
            group: 0,
            rows: None,
            row: 0,
            failed: false,
        })
    }

    /// Reads the next row. A row group begins when the one before it ends.
    fn fields(&mut self) -> Result<Option<Vec<Value>>, String> {
        loop {
            if let Some(row) = self.rows.as_mut().and_then(Iterator::next) {
                let row = row.map_err(|error| damaged(&error.to_string()))?;
                let values = row.into_columns().into_iter().map(|(_, field)| values::value(field));
                return values.collect::<Result<_, _>>().map(Some);
            }
            let Some(metadata) = self.metadata.row_groups().get(self.group) else { return Ok(None) };
            self.group += 1;
            let group = RowGroup { file: self.file.clone(), metadata: metadata.clone() };
            let rows = TreeBuilder::new().with_batch_size(BATCH).as_iter(self.schema.clone(), &group);
            self.rows = Some(rows.map_err(|error| damaged(&error.to_string()))?);
        }
    }

    fn values(&mut self) -> Result<Option<Vec<Value>>, String> {
        let read = catch_panic(|| self.fields()).map_err(|reason| damaged(&reason))?;
        let Some(fields) = read? else { return Ok(None) };
        let value = |column: &Column| {
            let value = fields.get(column.index).cloned().ok_or_else(|| damaged("a row lacks a column"))?;
            match &column.classes {
                Some(names) => classes::named(value, names).map_err(|reason| format!("\"{}\": {reason}", column.name)),
                None => Ok(value),
            }
        };
        self.columns.iter().map(value).collect::<Result<_, _>>().map(Some)
    }
}

impl Iterator for ParquetRows {
    type Item = Result<Record, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        self.row += 1;
        let place = Place::row(&self.named, self.row);
        match self.values() {
            Ok(values) => values.map(|values| Ok(Record { place, values, cells: vec![] })),
            Err(reason) => {
                self.failed = true;
                Some(Err(place.error(reason)))
            }
        }
    }
}

impl Records for ParquetRows {
    fn classes(&self, index: usize) -> Option<&[String]> {
        self.columns.get(index)?.classes.as_deref()
    }
}

/// Returns the distinct fields to read, and the columns in the requested order.
fn select(metadata: &ParquetMetaData, columns: &[&str]) -> Result<(Vec<TypePtr>, Vec<Column>), String> {
    let fields = metadata.file_metadata().schema().get_fields();
    let (mut selected, mut found): (Vec<TypePtr>, Vec<Column>) = (vec![], vec![]);
    for &name in columns {
        let number = || name.parse::<usize>().ok().and_then(|number| fields.get(number.checked_sub(1)?));
        let field = fields.iter().find(|field| field.name() == name).or_else(number).ok_or_else(|| {
            let known: Vec<&str> = fields.iter().map(|field| field.name()).collect();
            format!("there is no column `{name}`; the file has: {}", known.join(", "))
        })?;
        check_field(field)?;
        let known = selected.iter().position(|known| Arc::ptr_eq(known, field));
        let index = known.unwrap_or_else(|| {
            selected.push(field.clone());
            selected.len() - 1
        });
        let classes = classes::of_column(metadata.file_metadata(), field.name());
        found.push(Column { index, name: field.name().to_owned(), classes });
    }
    Ok((selected, found))
}

/// Rejects a group without fields, of which the crate would read any number of rows from no data.
fn check_field(field: &Type) -> Result<(), String> {
    if !field.get_basic_info().has_repetition() {
        return Err(damaged("a column does not say whether it repeats"));
    }
    if field.is_primitive() {
        return Ok(());
    }
    if field.get_fields().is_empty() {
        return Err(damaged(&format!("the column `{}` has no fields", field.name())));
    }
    field.get_fields().iter().try_for_each(|field| check_field(field))
}

/// Checks both ends of a file, and the schema in its footer.
fn check_ends(file: &mut File, path: &Path) -> Result<(), String> {
    let length = file.metadata().map_err(|error| format!("cannot be read: {error}"))?.len();
    let mut read = |from: u64, count: u64| -> Result<Vec<u8>, String> {
        let mut bytes = vec![];
        let read = file.seek(SeekFrom::Start(from)).and_then(|_| (&*file).take(count).read_to_end(&mut bytes));
        read.map_err(|error| format!("cannot be read: {error}"))?;
        Ok(bytes)
    };
    let start = read(0, 512)?;
    if let Some(reason) = grove_files::failed_download(&start) {
        return Err(reason.to_string());
    }
    if !start.starts_with(b"PAR1") {
        return Err(match start.starts_with(b"PARE") {
            true => "it is encrypted; write it without encryption".into(),
            false => format!("it is not a Parquet file, which begins with PAR1; is {} its name?", path.display()),
        });
    }
    let end = read(length.saturating_sub(END), END)?;
    let Some(footer) = end.strip_suffix(b"PAR1").and_then(|length| <[u8; 4]>::try_from(length).ok()) else {
        return Err("it does not end with PAR1, so its end is missing; download or write it again".into());
    };
    let footer = u64::from(u32::from_le_bytes(footer));
    let Some(from) = length.checked_sub(END + 4 + footer) else {
        return Err(damaged("its footer is longer than the file"));
    };
    footer::check(&read(from + 4, footer)?).map_err(|reason| damaged(&reason))
}

/// Checks that the columns are within the file and have as many values as there are rows, and that the file is not too small
/// for its rows: a page of a few bytes can repeat a value two billion times.
fn check_chunks(metadata: &ParquetMetaData, length: u64) -> Result<(), String> {
    let rows =
        metadata.row_groups().iter().fold(0_u64, |sum, group| sum.saturating_add(group.num_rows().max(0) as u64));
    if rows > FEW_ROWS.saturating_add(length.saturating_mul(ROWS_PER_BYTE)) {
        return Err(format!("a file of {length} bytes claims to have {rows} rows"));
    }
    for group in metadata.row_groups() {
        for column in group.columns() {
            let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
            let end =
                start.checked_add(column.compressed_size()).filter(|_| start >= 0 && column.compressed_size() >= 0);
            if end.is_none_or(|end| end as u64 > length) {
                return Err(format!("the column {} is outside of the file", column.column_path()));
            }
            if group.num_rows() < 0 || column.num_values() < group.num_rows() {
                return Err(format!("the column {} has fewer values than there are rows", column.column_path()));
            }
        }
    }
    Ok(())
}

/// Checks that grove can decompress the columns of these fields.
fn check_codecs(metadata: &ParquetMetaData, fields: &[TypePtr]) -> Result<(), String> {
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let is_read = |path: &[String]| fields.iter().any(|field| path.first().is_some_and(|name| name == field.name()));
    let mut codecs = columns.filter(|column| is_read(column.column_path().parts())).map(|column| column.compression());
    codecs.try_for_each(codec::check)
}

fn flat<T>(read: Result<Result<T, ParquetError>, String>) -> Result<T, String> {
    read.and_then(|read| read.map_err(|error| error.to_string()))
}

fn damaged(reason: &str) -> String {
    format!("the file is damaged ({reason}); download or write it again")
}
