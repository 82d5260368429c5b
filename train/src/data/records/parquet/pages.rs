//! Pages of a row group, decompressed without trusting the sizes that they claim.

use parquet::{
    basic::{Compression, Encoding},
    bloom_filter::Sbbf,
    column::page::{Page, PageMetadata, PageReader},
    errors::{ParquetError, Result},
    file::{
        metadata::RowGroupMetaData,
        reader::{RowGroupReader, SerializedPageReader},
    },
    record::reader::RowIter,
    schema::types::Type,
};
use std::{fs::File, sync::Arc};

use super::codec;

/// Maximum number of values of a page in a column of lists. The crate reads whole lists.
const MAX_LIST_VALUES: u32 = 1 << 22;

/// Maximum number of values for each byte of a page whose lengths are encoded as differences. The crate allocates a
/// length for each value. Writers make blocks of 128 values with at least 5 bytes.
const DELTA_VALUES_PER_BYTE: usize = 128;

/// A row group of a file.
pub(super) struct RowGroup {
    pub(super) file: Arc<File>,
    pub(super) metadata: RowGroupMetaData,
}

impl RowGroupReader for RowGroup {
    fn metadata(&self) -> &RowGroupMetaData {
        &self.metadata
    }

    fn num_columns(&self) -> usize {
        self.metadata.num_columns()
    }

    fn get_column_page_reader(&self, i: usize) -> Result<Box<dyn PageReader>> {
        let column = self.metadata.column(i);
        let codec = column.compression();
        codec::check(codec).map_err(ParquetError::General)?;
        // The reader of the crate would allocate the size that a page claims. It returns compressed pages as they are.
        let raw = column.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
        let rows = usize::try_from(self.metadata.num_rows())?;
        let pages = SerializedPageReader::new(self.file.clone(), &raw, rows, None)?;
        Ok(Box::new(Pages { pages, codec, has_lists: column.column_descr().max_rep_level() > 0 }))
    }

    fn get_column_bloom_filter(&self, _: usize) -> Option<&Sbbf> {
        None
    }

    fn get_row_iter(&self, projection: Option<Type>) -> Result<RowIter<'_>> {
        RowIter::from_row_group(projection, self)
    }
}

struct Pages {
    pages: SerializedPageReader<File>,
    codec: Compression,
    has_lists: bool,
}

impl Pages {
    fn decompress(&self, mut page: Page) -> Result<Page, String> {
        match &mut page {
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => {
                *buf = codec::decompress(self.codec, buf)?.into();
            }
            Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, is_compressed, .. } => {
                // The levels come first and are not compressed.
                let levels = *def_levels_byte_len as usize + *rep_levels_byte_len as usize;
                let values = buf.get(levels..).ok_or("a page is shorter than its levels")?;
                if std::mem::take(is_compressed) && !values.is_empty() {
                    *buf = [&buf[..levels], &codec::decompress(self.codec, values)?].concat().into();
                }
            }
        }
        Ok(page)
    }

    /// Refuses a page that claims more values than its bytes can hold, for which the crate would allocate memory.
    fn check(&self, page: Page) -> Result<Page, String> {
        let (values, bytes) = (page.num_values(), page.buffer().len());
        let is_delta = matches!(
            page.encoding(),
            Encoding::DELTA_BINARY_PACKED | Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY
        );
        let too_many = page.is_dictionary_page() && values as usize > bytes
            || is_delta && values as usize > bytes.saturating_mul(DELTA_VALUES_PER_BYTE)
            || self.has_lists && values > MAX_LIST_VALUES;
        if too_many { Err(format!("a page of {bytes} bytes claims to have {values} values")) } else { Ok(page) }
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(page) = self.pages.get_next_page()? else { return Ok(None) };
        self.decompress(page).and_then(|page| self.check(page)).map(Some).map_err(ParquetError::General)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}
