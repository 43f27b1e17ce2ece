{{- define "penstock.name" -}}
{{- if contains "penstock" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-penstock" (.Release.Name | trunc 31 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "penstock.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "penstock.brokerSecret" -}}
{{- if .Values.broker.enabled }}{{ .Values.broker.existingSecret | default (printf "%s-broker" (include "penstock.name" .)) }}
{{- else }}{{ required "give broker.existingSecret: its url is the broker's" .Values.broker.existingSecret }}{{ end }}
{{- end }}

{{- define "penstock.store" -}}
{{- if .Values.store.existingClaim }}file:///checkpoints{{ else }}{{ required "give store.url or store.existingClaim: every pod must reach the checkpoints" .Values.store.url }}{{ end }}
{{- end }}

{{/* What every process of ours reads. */}}
{{- define "penstock.environment" -}}
- name: PENSTOCK_BROKER
  valueFrom:
    secretKeyRef:
      name: {{ include "penstock.brokerSecret" . }}
      key: url
{{- if .Values.ledger.existingSecret }}
- name: PENSTOCK_LEDGER
  valueFrom:
    secretKeyRef:
      name: {{ .Values.ledger.existingSecret }}
      key: url
{{- end }}
{{- end }}

{{- define "penstock.credentials" -}}
{{- with .Values.store.credentialsSecret }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
{{- end }}

{{- define "penstock.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
{{- end }}
