//! What the program shares with other programs of the checkout: how they speak ([`output`]), start threads ([`threads`]) and
//! measure ([`mod@bench`]). Its commands are in the program itself, `raddle`.
#![forbid(unsafe_code)]

pub mod bench;
pub mod output;
pub mod threads;
