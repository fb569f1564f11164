//! Numbers in fewer bits than `usize`, where the reader's limits keep them small.
//!
//! Left out: an error. Each of these is bounded before it is narrowed; a number that is too large all the same becomes the
//! largest, which no lookup finds, instead of wrapping round to a place that exists.

/// An offset into an element, which has at most [`Limits::element_bytes`](crate::Limits) bytes, a `u32`.
#[inline(always)]
pub(crate) fn offset_u32(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// The length of a part of a name, which has at most [`Limits::name_bytes`](crate::Limits) bytes, a `u16`.
#[inline(always)]
pub(crate) fn name_len_u16(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// A number of open elements, prefixes or bytes of a stream's name, all of which fit one array on the stack.
#[inline(always)]
pub(crate) fn depth_u8(depth: usize) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}
