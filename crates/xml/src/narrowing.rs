//! Conversions from `usize` to narrower integers, for values that the reader's limits bound.
//!
//! Not implemented: an error. Every value is bounded before it is narrowed. A value that is too large all the same
//! saturates: no lookup finds the maximum, whereas a wrapped value would be a valid offset.

/// An offset into an element of at most [`Limits::element_bytes`](crate::Limits) bytes, a `u32`.
#[inline(always)]
pub(crate) fn offset_u32(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// The length of a part of a name of at most [`Limits::name_bytes`](crate::Limits) bytes, a `u16`.
#[inline(always)]
pub(crate) fn name_len_u16(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// A count of open elements, prefixes or bytes of a stream's name; all fit a fixed array on the stack.
#[inline(always)]
pub(crate) fn depth_u8(depth: usize) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}
