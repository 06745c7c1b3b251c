// Renders a chart as `helm template` does, with Go's own text/template and sprig, since Helm is not in Debian. For tests:
//
//	render_chart CHART RELEASE NAMESPACE VALUES.yaml...
//
// Later files of values win, key by key. Prints the manifests, then NOTES.txt as a comment. Built with
// GO111MODULE=off GOPATH=/usr/share/gocode.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

type object = map[string]interface{}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return errors.New("render_chart CHART RELEASE NAMESPACE VALUES.yaml...")
	}
	chart, err := read(filepath.Join(args[0], "Chart.yaml"))
	if err != nil {
		return err
	}
	values, err := read(filepath.Join(args[0], "values.yaml"))
	if err != nil {
		return err
	}
	for _, path := range args[3:] {
		own, err := read(path)
		if err != nil {
			return err
		}
		merge(values, own)
	}
	files, err := filepath.Glob(filepath.Join(args[0], "templates", "*"))
	if err != nil {
		return err
	}
	sort.Strings(files)
	all := template.New("chart").Option("missingkey=zero")
	all.Funcs(sprig.TxtFuncMap()).Funcs(functions(all))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if _, err := all.New(filepath.Base(file)).Parse(string(text)); err != nil {
			return err
		}
	}
	data := object{
		"Values":  values,
		"Release": object{"Name": args[1], "Namespace": args[2], "Service": "Helm", "IsInstall": true, "Revision": 1},
		"Chart":   object{"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"]},
	}
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasPrefix(name, "_") {
			continue
		}
		var out bytes.Buffer
		if err := all.ExecuteTemplate(&out, name, data); err != nil {
			return err
		}
		// Helm prints <no value> as nothing.
		text := strings.ReplaceAll(out.String(), "<no value>", "")
		if name == "NOTES.txt" {
			text = "# " + strings.ReplaceAll(text, "\n", "\n# ")
		}
		fmt.Printf("---\n# Source: %s\n%s\n", name, text)
	}
	return nil
}

// The functions that Helm adds to sprig's, as far as the chart calls them.
func functions(all *template.Template) template.FuncMap {
	return template.FuncMap{
		"include": func(name string, data interface{}) (string, error) {
			var out strings.Builder
			err := all.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		// `helm template` asks no cluster.
		"lookup": func(api, kind, namespace, name string) object { return object{} },
	}
}

func read(path string) (object, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var value object
	if err := yaml.Unmarshal(text, &value); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	numbers(value)
	return value, nil
}

// Helm reads values through JSON, where all numbers are floating-point.
func numbers(value interface{}) interface{} {
	switch it := value.(type) {
	case int:
		return float64(it)
	case object:
		for key, item := range it {
			it[key] = numbers(item)
		}
	case []interface{}:
		for index, item := range it {
			it[index] = numbers(item)
		}
	}
	return value
}

func merge(values, own object) {
	for key, item := range own {
		into, isObject := values[key].(object)
		from, both := item.(object)
		if isObject && both {
			merge(into, from)
		} else if item == nil {
			delete(values, key)
		} else {
			values[key] = item
		}
	}
}
