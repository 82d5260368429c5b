//! Tile registers of AMX.

use std::arch::asm;

/// Layout of the tile registers, as the CPU reads it.
#[repr(C, align(64))]
struct Layout {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_per_row: [u16; 16],
    rows: [u8; 16],
}

/// Configured tile registers of this thread.
pub(crate) struct Tiles(std::marker::PhantomData<*const ()>);

impl Tiles {
    /// Configures each register, given its rows, at most 16, and bytes per row, at most 64.
    ///
    /// # Safety
    /// The CPU must [multiply tiles](super::multiplies_tiles).
    pub unsafe fn configure(shapes: [[usize; 2]; 8]) -> Self {
        let mut layout = Layout { palette: 1, start_row: 0, reserved: [0; 14], bytes_per_row: [0; 16], rows: [0; 16] };
        for (i, [rows, bytes]) in shapes.into_iter().enumerate() {
            assert!(rows <= 16 && bytes <= 64, "a tile of {rows} rows of {bytes} bytes");
            (layout.rows[i], layout.bytes_per_row[i]) = (rows as u8, bytes as u16);
        }
        // SAFETY: the instruction reads 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &layout, options(nostack, readonly, preserves_flags)) };
        Self(std::marker::PhantomData)
    }
}

impl Drop for Tiles {
    /// Makes the registers unused again, so that the system need not save them.
    fn drop(&mut self) {
        // SAFETY: the CPU multiplies tiles, as the caller of `configure` guarantees.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}
