//! `/api/v1/sandboxes/{id}/metrics`: measurements of a sandbox.

use axum::extract::State;
use workspace_api::error::ErrorBody;
use workspace_api::error_codes;
use workspace_api::sandbox_metrics::{MetricSample, MetricSeries, MetricsQuery};
use workspace_sandbox::MeasurementSample;

use super::conversion::parse_time;
use crate::app::App;
use crate::caller::{Caller, scope};
use crate::error::ApiError;
use crate::extract::{Json, Path, Query};
use crate::time::format_millis;

/// Get the resource usage of a sandbox over the last hour.
///
/// A running sandbox is measured every 5 seconds, except while it is frozen. The measurements survive a restart of the
/// server, and are deleted with the sandbox.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/metrics", tag = "sandboxes", operation_id = "sandbox_metrics",
    params(("id" = String, Path, description = "Id of the sandbox"), MetricsQuery), responses(
    (status = 200, description = "Measurements", body = MetricSeries),
    (status = "default", description = "Error", body = ErrorBody),
))]
pub(super) async fn metrics(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<MetricsQuery>,
) -> Result<Json<MetricSeries>, ApiError> {
    let (from, to) = (parse_time("from", query.from.as_deref())?, parse_time("to", query.to.as_deref())?);
    if from.zip(to).is_some_and(|(from, to)| from > to) {
        let error = ApiError::new(error_codes::INVALID_REQUEST, "from must not be later than to");
        return Err(error.detail("field", "from"));
    }
    let _permit = app.work_limits.read(&caller.owner).await;
    let measured = app.sandboxes.measurements(&scope(&caller), &id, from, to).await?;
    let samples = measured.iter().map(sample_to_api).collect::<Result<_, ApiError>>()?;
    let interval_seconds = app.sandboxes.settings().measurement_interval.as_secs();
    Ok(Json(MetricSeries { sandbox_id: id, interval_seconds, samples }))
}

fn sample_to_api(measured: &MeasurementSample) -> Result<MetricSample, ApiError> {
    let measurement = &measured.measurement;
    Ok(MetricSample {
        time: format_millis(measurement.time)?,
        cpu_percent: measured.cpu_percent,
        cpu_seconds: measurement.cpu.map(|cpu| cpu.as_secs_f64()),
        memory: measurement.memory,
        disk: measurement.disk,
        processes: measurement.processes,
        rx_bytes: measurement.network.map(|network| network.received),
        tx_bytes: measurement.network.map(|network| network.sent),
    })
}
