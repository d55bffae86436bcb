//! Where lines come from. Every viewer and every report reads an agent's lines from a source and knows no other way.

pub mod child;
mod event;

pub use self::event::SourceEvent;
