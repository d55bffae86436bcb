//! The part of a process's page that its agent looks up when the page is opened.

use super::Writer;
use crate::protocol::reply::Inspection;

pub(super) fn describe(writer: &mut Writer, inspection: &Inspection) {
    if let Some(trouble) = &inspection.trouble {
        writer.field("not all", trouble);
    }
    writer.list(
        "parents",
        Some(
            inspection
                .ancestors
                .iter()
                .map(|(pid, comm)| format!("{pid} {comm}")),
        ),
    );
    writer.list("program", inspection.exe.as_ref().map(|exe| [exe]));
    writer.list("directory", inspection.cwd.as_ref().map(|cwd| [cwd]));
    writer.list(
        "control group",
        inspection.cgroup.as_ref().map(|cgroup| [cgroup]),
    );
    writer.list("PSS", inspection.pss.map(|pss| [pss]));
    let limits = inspection.limits.as_ref();
    writer.list(
        "limits",
        limits.map(|limits| {
            limits
                .iter()
                .map(|(name, soft, hard)| format!("{name}: {soft} (hard {hard})"))
        }),
    );
    writer.list("environment", inspection.environment.as_ref());
    let files = inspection.files.as_ref();
    writer.list(
        "open files",
        files.map(|files| {
            files
                .iter()
                .map(|(number, path)| format!("{number} {path}"))
        }),
    );
}
