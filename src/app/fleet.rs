//! Facts about hosts that the app says on its own: troubles, news and alerts.

pub(crate) mod alert_scope;
pub(crate) mod alerts;
pub(crate) mod connections;
pub(crate) mod fleet_areas;
mod fleet_refresh;
pub(crate) mod fleet_view;
pub(crate) mod host_rows;
pub(crate) mod host_sort;
pub(crate) mod host_trouble;
pub(crate) mod news;
pub(crate) mod no_gpu;
pub(crate) mod slurm_job;
pub(crate) mod told_news;
pub(crate) mod trouble_lines;
pub(crate) mod troubles;
pub(crate) mod viewer_clock;
