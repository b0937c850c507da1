//! Matrices as products see them.

use super::axis::Shared;

/// A matrix in memory. Element (i, j) lies at `i · row + j · column`.
#[derive(Clone, Copy)]
pub struct Matrix<A> {
    /// Element (0, 0).
    pub start: Shared<A>,
    /// Step to the next row.
    pub row: usize,
    /// Step to the next column.
    pub column: usize,
}

impl<A: Copy> Matrix<A> {
    /// Rows and columns swapped.
    pub fn transposed(self) -> Matrix<A> {
        Matrix { start: self.start, row: self.column, column: self.row }
    }
    /// From element (i, j) on.
    pub fn from(self, i: usize, j: usize) -> Matrix<A> {
        Matrix { start: Shared::new(self.at(i, j)), ..self }
    }
    /// Element (i, j).
    pub fn at(&self, i: usize, j: usize) -> *mut A {
        self.start.at(i * self.row + j * self.column)
    }
}
