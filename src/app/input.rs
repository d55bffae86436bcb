//! The user acts: keys, mouse, dialogs and modes, and the words in reply.

pub(crate) mod ask_probe;
pub(crate) mod badges;
pub(crate) mod cursor;
pub(crate) mod demo_hints;
pub(crate) mod end_dialog;
mod end_intents;
pub(crate) mod end_over_hosts;
pub(crate) mod fleet_keys;
pub(crate) mod footer;
pub(crate) mod gpu_number;
pub(crate) mod intents;
pub(crate) mod job_page;
pub(crate) mod mode;
pub(crate) mod mouse;
pub(crate) mod notice;
pub(crate) mod settings_panel;
pub(crate) mod sort_menu;
pub(crate) mod subject_pages;
