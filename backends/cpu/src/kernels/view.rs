//! Typed access to the operands of a launch.

use raddle_base::Layout;
use raddle_hal::View;

/// The first element of the storage that a view lies in (its layout's offset is not added).
pub fn base<T>(view: &View) -> *mut T {
    (view.address.handle as usize + view.address.offset_bytes) as *mut T
}

/// The first element of the view.
pub fn start<T>(view: &View) -> *mut T {
    base::<T>(view).wrapping_add(view.layout.offset())
}

/// The layout of the view.
pub fn layout(view: &View) -> &Layout {
    &view.layout
}
