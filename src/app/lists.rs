//! The lists of GPUs and processes: columns, cells, rows, their order, and what is selected.

pub(crate) mod columns;
pub(crate) mod empty_list;
pub(crate) mod gpu_cells;
pub(crate) mod gpu_columns;
pub(crate) mod gpu_list;
pub(crate) mod gpu_notes;
pub(crate) mod gpu_users;
pub(crate) mod list_view;
pub(crate) mod process_cells;
pub(crate) mod process_columns;
pub(crate) mod process_list;
pub(crate) mod process_widths;
pub(crate) mod row_order;
pub(crate) mod rows;
pub(crate) mod unknown_processes;
pub(crate) mod unread_stats;
pub(crate) mod user_totals;
