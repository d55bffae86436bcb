//! Facts about hosts that the app says on its own: troubles, news and alerts.

pub(crate) mod alert_scope;
pub(crate) mod alerts;
pub(crate) mod connections;
pub(crate) mod host_trouble;
pub(crate) mod news;
pub(crate) mod no_gpu;
pub(crate) mod told_news;
pub(crate) mod troubles;
