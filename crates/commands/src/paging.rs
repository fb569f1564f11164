//! Fields of commands that list something page by page, and are not in XEP-0133.

use crate::{CommandField, CommandFieldKind};

/// Limit of items per page.
pub const MAX_PAGE: u32 = 1_000;

/// Input: how many items a page has; 0 is the limit.
pub const MAX_ITEMS: CommandField = CommandField::new(
    "max-items",
    "x-max-items",
    "Maximum number of items to show",
    CommandFieldKind::Count(MAX_PAGE, &[25, 50, 100, 200]),
)
.default("100");

/// Input: where the page begins.
pub const AFTER: CommandField = CommandField::new("after", "x-after", "Start after", CommandFieldKind::Text)
    .doc("The `next` of the previous page.");

/// Output: where the next page begins.
pub static NEXT: CommandField =
    CommandField::new("next", "x-next", "Start of the next page", CommandFieldKind::Text)
        .doc("Absent on the last page.");
