{{/* Name of everything in this release; short, because the name of a node has at most 24 characters. */}}
{{- define "throng.name" -}}
{{- if gt (len .Release.Name) 20 -}}
{{- fail "the name of the release must have at most 20 characters, because a node is named after it" -}}
{{- end -}}
{{- .Release.Name -}}
{{- end -}}

{{- define "throng.selector" -}}
app.kubernetes.io/name: throng
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "throng.labels" -}}
{{ include "throng.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "throng.postgresSecret" -}}
{{- .Values.postgres.secret | default (printf "%s-postgres" (include "throng.name" .)) -}}
{{- end -}}

{{/* URLs of NATS as a TOML array. */}}
{{- define "throng.natsUrls" -}}
{{- $name := include "throng.name" . -}}
{{- $urls := .Values.nats.urls -}}
{{- if .Values.nats.enabled -}}
{{- $urls = list -}}
{{- range until (int .Values.nats.replicas) -}}
{{- $urls = append $urls (printf "nats://%s-nats-%d.%s-nats:4222" $name . $name) -}}
{{- end -}}
{{- else if not $urls -}}
{{- fail "set nats.urls, or nats.enabled" -}}
{{- end -}}
{{- toJson $urls -}}
{{- end -}}

{{/* Nodes of one component on different machines where possible. */}}
{{- define "throng.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "throng.selector" . | nindent 8 }}
{{- end -}}

{{- define "throng.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: ["ALL"] }
{{- end -}}
