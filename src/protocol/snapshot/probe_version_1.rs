//! The names that the first version of the probe gave to values. Programs that started before an
//! upgrade of gputop still publish them, and earlier out-of-memory reports have them.

use serde_json::Value;

/// An old name and the new one.
type Renamed = (&'static str, &'static str);

const TIME: Renamed = ("time", "unix_time_seconds");
const DEVICE: Renamed = ("device", "cuda_device");

/// The new names of values, by the path of the objects or lists of objects that have them.
const PARTS: [(&[&str], &[Renamed]); 6] = [
    (
        &["devices"],
        &[
            ("index", "cuda_device"),
            ("uuid", "gpu_uuid"),
            TIME,
            ("allocated", "allocated_bytes"),
            ("reserved", "reserved_bytes"),
            ("requested", "requested_bytes"),
            ("categories", "category_bytes"),
            ("optimizer_state", "optimizer_state_bytes"),
            ("floor", "floor_bytes"),
            ("peak", "peak_bytes"),
        ],
    ),
    (
        &["devices", "step_end"],
        &[
            ("allocated", "allocated_bytes"),
            ("reserved", "reserved_bytes"),
            ("requested", "requested_bytes"),
            ("categories", "category_bytes"),
            ("optimizer_state", "optimizer_state_bytes"),
        ],
    ),
    (&["groups"], &[DEVICE, ("block", "block_bytes")]),
    (&["leaks"], &[DEVICE]),
    (&["marks"], &[TIME]),
    (
        &["answer", "peak"],
        &[
            DEVICE,
            ("peak", "peak_bytes"),
            ("categories", "category_bytes"),
        ],
    ),
];

/// Gives the values of a report the names of version 2.
pub(crate) fn rename_report(report: &mut Value) {
    rename(report, &[], &[TIME]);
    rename_parts(report);
}

/// Gives the values in the parts of a report the names of version 2. An out-of-memory report has
/// these parts too, under names of its own.
pub(crate) fn rename_parts(report: &mut Value) {
    for (path, names) in PARTS {
        rename(report, path, names);
    }
}

fn rename(value: &mut Value, path: &[&str], names: &[Renamed]) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, path, names)),
        Value::Object(object) => match path {
            [first, rest @ ..] => {
                if let Some(part) = object.get_mut(*first) {
                    rename(part, rest, names);
                }
            }
            [] => {
                for (old, new) in names {
                    if let Some(value) = object.remove(*old) {
                        object.insert((*new).to_owned(), value);
                    }
                }
            }
        },
        _ => {}
    }
}
