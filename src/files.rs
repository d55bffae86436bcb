//! The files of gputop in the user's folders, and the process that may hang on a file.
//!
//! A home directory may be on a network that is down. A thread that waits for it in the kernel
//! cannot be ended, and until it returns, the shell waits for the whole process. So a process of
//! its own (`hidden_commands`) acts on a file, which gputop can leave behind.

pub(crate) mod action;
pub(crate) mod folders;
pub(crate) mod history;
pub(crate) mod local_time;
pub(crate) mod private_file;
pub(crate) mod private_folder;
pub(crate) mod probe_files;
pub(crate) mod process_start;
pub(crate) mod recorder_note;
pub(crate) mod recorder_socket;
pub(crate) mod rests;
pub(crate) mod settings_text;
